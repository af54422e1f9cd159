package activities

import "time"

// GroupTaskTimeout is the workflow task timeout of a group, as of every other
// workflow: how long a task that a killed worker held stays lost.
const GroupTaskTimeout = 2 * time.Second

// What a concurrency group and its members say to one another.
const (
	// GroupWorkflow is the registered type of the workflow that keeps a group.
	GroupWorkflow = "Group"
	// SlotSignal goes to a group, with a SlotRequest: one name for asking and
	// for giving back, so that the two stay in order.
	SlotSignal = "slot"
	// SlotNewsSignal goes from a group to a member, with SlotNews.
	SlotNewsSignal = "slot_news"
)

// GroupInput starts a group. State is what an earlier run of its workflow
// carried over; nil at first.
type GroupInput struct {
	Tenant  string `json:"tenant"`
	Project string `json:"project"`
	Name    string `json:"name"`
	State   []byte `json:"state,omitempty"`
}

// SlotRequest asks a group for a slot, or gives one back. To ask again changes
// nothing: who waits keeps the place, who holds is told so once more.
type SlotRequest struct {
	Owner Owner `json:"owner"`
	// Release gives back what Owner holds, or the place in the queue. The rest
	// is for asking.
	Release bool `json:"release,omitempty"`
	// Limit is how many the group lets run at once from now on.
	Limit int `json:"limit,omitempty"`
	// OnFull is one of spec.OnFullQueue and its like.
	OnFull string `json:"on_full,omitempty"`
	// Linger is how long processes of Owner may live on after its workflow was
	// closed from outside: they hear of it and have their grace period.
	Linger time.Duration `json:"linger,omitempty"`
}

// SlotNews is what a group tells a member.
type SlotNews struct {
	// State is SlotGranted, SlotRefused or SlotQueued.
	State string `json:"state"`
	// Group and Node say to which of its memberships the news belong: a stage
	// is a member, and so may each of its steps be.
	Group string `json:"group,omitempty"`
	Node  string `json:"node,omitempty"`
	// Position in the queue, from 1; Holder is who holds a slot, the first of
	// them.
	Position int    `json:"position,omitempty"`
	Holder   string `json:"holder,omitempty"`
}

// The states of SlotNews.
const (
	SlotGranted = "granted"
	SlotRefused = "refused"
	SlotQueued  = "queued"
)

// SlotInput is a request and the group that it is for.
type SlotInput struct {
	Tenant  string      `json:"tenant"`
	Project string      `json:"project"`
	Group   string      `json:"group"`
	Request SlotRequest `json:"request"`
}

// OwnersInput names members of a group that are to be looked for.
type OwnersInput struct {
	Owners []Owner `json:"owners"`
}

// OwnerLife is what Temporal knows of one of them. EndedAt is zero where it does
// not know the workflow any more.
type OwnerLife struct {
	Alive   bool      `json:"alive"`
	EndedAt time.Time `json:"ended_at,omitzero"`
}

// MakeWayInput cancels members of a group for newer ones.
type MakeWayInput struct {
	Group    string         `json:"group"`
	Replaced []Supersession `json:"replaced"`
}

// Supersession is a member that makes way, and the name of the one it is for.
type Supersession struct {
	Owner Owner  `json:"owner"`
	By    string `json:"by"`
}
