package workflows

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"belay.run/activities"
	"belay.run/internal/run"
)

const (
	// maxTakenBack bounds what a group remembers of slots it took back.
	maxTakenBack = 50
	// leftFor is how long a group remembers who has left, at most maxLeft of
	// them: a request that was sent twice may come after its member is gone.
	leftFor = 2 * time.Minute
	maxLeft = 1000
	// maxShown bounds the members that a query returns.
	maxShown = 1000
)

// GroupState is a concurrency group at one moment: the answer to
// [GroupStateQuery], and the result of its workflow.
type GroupState struct {
	Tenant  string `json:"tenant"`
	Project string `json:"project"`
	Name    string `json:"name"`
	Limit   int    `json:"limit"`
	// Holders have a slot, Queue waits for one, both in the order of arrival.
	// Waiting is how many wait, also where Queue is cut short.
	Holders []Member `json:"holders"`
	Queue   []Member `json:"queue"`
	Waiting int      `json:"waiting"`
	// TakenBack are slots whose owners had gone without giving them back.
	TakenBack []TakenBack `json:"taken_back,omitempty"`
	// Left are those who have left lately.
	Left []Departure `json:"left,omitempty"`
}

// Member holds a slot of a group or waits for one.
type Member struct {
	Owner   activities.Owner `json:"owner"`
	AskedAt time.Time        `json:"asked_at"`
	HeldAt  *time.Time       `json:"held_at,omitempty"`
	OnFull  string           `json:"on_full,omitempty"`
	Linger  time.Duration    `json:"linger,omitempty"`
	// Heard: it knows that it holds a slot.
	Heard bool `json:"heard,omitempty"`
	// Superseded: told to make way for a newer one.
	Superseded bool `json:"superseded,omitempty"`
	// MissedAt is since when its workflow is known to be closed.
	MissedAt *time.Time `json:"missed_at,omitempty"`
	// Told is what the member was last told of its place.
	Told activities.SlotNews `json:"told,omitzero"`
}

// TakenBack is a slot that was taken back from an owner that had gone.
type TakenBack struct {
	Owner  activities.Owner `json:"owner"`
	HeldAt *time.Time       `json:"held_at,omitempty"`
	At     time.Time        `json:"at"`
	Why    string           `json:"why"`
}

// Departure is a member that has left: the run of its workflow, and its node.
type Departure struct {
	RunID string    `json:"run_id"`
	Node  string    `json:"node,omitempty"`
	At    time.Time `json:"at"`
}

// find is the place of an owner among members, -1 where it is none of them. An
// owner is a node of a run: a reset run is still the same.
func find(members []Member, o activities.Owner) int {
	return slices.IndexFunc(members, func(m Member) bool { return m.Owner.RunKey == o.RunKey && m.Owner.Node == o.Node })
}

// forget removes the departures that are no longer needed.
func (s *GroupState) forget(now time.Time) {
	s.Left = slices.DeleteFunc(s.Left, func(d Departure) bool { return now.Sub(d.At) > leftFor })
	if extra := len(s.Left) - maxLeft; extra > 0 {
		s.Left = slices.Delete(s.Left, 0, extra)
	}
}

// hasLeft reports whether an owner has left lately. A reset run is another here:
// it asks anew.
func (s *GroupState) hasLeft(o activities.Owner) bool {
	return slices.ContainsFunc(s.Left, func(d Departure) bool { return d.RunID == o.RunID && d.Node == o.Node })
}

// hasRunOf reports whether the run of a stage, or the stage of a step, holds a slot.
// It is in the group by that: were it to wait, it would wait for itself.
func (s *GroupState) hasRunOf(o activities.Owner) bool {
	return slices.ContainsFunc(s.Holders, func(m Member) bool {
		h := m.Owner
		return h.RunKey == o.RunKey && h.Node != o.Node && (h.Node == "" || run.Within(o.Node, h.Node))
	})
}

// holder is what those who wait are told of who is before them.
func (s *GroupState) holder() string {
	if len(s.Holders) == 0 {
		return ""
	}
	return activities.SlotOwnerName(s.Holders[0].Owner)
}

// shown is the state as a query returns it: lists are never null, and of a size
// that Temporal carries.
func (s *GroupState) shown() GroupState {
	out := *s
	out.Waiting, out.Left = len(s.Queue), nil
	out.Holders = append([]Member{}, s.Holders[:min(len(s.Holders), maxShown)]...)
	out.Queue = append([]Member{}, s.Queue[:min(len(s.Queue), maxShown)]...)
	return out
}

// pack makes the state small enough to be carried over, however long the queue.
func (s *GroupState) pack() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("packing the state of the group: %w", err)
	}
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	if _, err := zip.Write(text); err != nil {
		return nil, fmt.Errorf("packing the state of the group: %w", err)
	}
	if err := zip.Close(); err != nil {
		return nil, fmt.Errorf("packing the state of the group: %w", err)
	}
	return b.Bytes(), nil
}

// unpack reads what an earlier run packed; nil is nothing.
func (s *GroupState) unpack(packed []byte) error {
	if len(packed) == 0 {
		return nil
	}
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return fmt.Errorf("unpacking the state of the group: %w", err)
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		return fmt.Errorf("unpacking the state of the group: %w", err)
	}
	if err := json.Unmarshal(text, s); err != nil {
		return fmt.Errorf("unpacking the state of the group: %w", err)
	}
	return nil
}
