package dedup

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// MaxSummary is how many bytes of a summary a record keeps.
	MaxSummary = 4 << 10
	// MaxOutputs is how many bytes of outputs, names included, a record keeps;
	// larger ones go to the store.
	MaxOutputs = 4 << 10
	maxMessage = 1 << 10
	maxSender  = 256
)

// errDamaged is returned where Redis holds something that is no record.
var errDamaged = errors.New("damaged record")

// document is the part of a record that is one field, as JSON.
type document struct {
	Key     Key     `json:"key"`
	Owner   Owner   `json:"owner"`
	Request Request `json:"request"`
	// Fingerprint is that of the inputs.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// encode writes the document within its bounds: the sender, which is for people,
// is cut, but a key or a request id that is too long would mean another.
func (d document) encode() (string, error) {
	d.Request.Sender = cut(d.Request.Sender, maxSender)
	if err := d.Key.check(); err != nil {
		return "", err
	}
	if len(d.Request.ID) > maxRequestID {
		return "", fmt.Errorf("a request id has at most %d bytes, this one %d", maxRequestID, len(d.Request.ID))
	}
	b, err := json.Marshal(d)
	return string(b), err
}

// who is an owner as scripts compare it. A run key has no slash, and the whole no
// line break.
func (o Owner) who() string {
	return o.RunKey + "/" + strings.ReplaceAll(o.Node, "\n", "\x00")
}

// stored is a record and what only this package needs of it.
type stored struct {
	Record
	// only says that there was never another grant under the key.
	only bool
	// announced says that it was granted over a completed one inside its window.
	announced bool
	// died says that it ended since its owner was dead: that answers nobody.
	died bool
}

func (r *stored) over(now time.Time) bool { return r.died || r.Record.over(now) }

// decode reads the fields of a hash, name and value in turn.
func decode(v any) (stored, error) {
	flat, ok := v.([]any)
	if !ok || len(flat)%2 != 0 {
		return stored{}, errDamaged
	}
	fields := make(map[string]string, len(flat)/2)
	for i := 0; i < len(flat); i += 2 {
		name, ok1 := flat[i].(string)
		value, ok2 := flat[i+1].(string)
		if !ok1 || !ok2 {
			return stored{}, errDamaged
		}
		fields[name] = value
	}
	r, err := decodeFields(fields)
	if err != nil {
		return stored{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return r, nil
}

func decodeFields(fields map[string]string) (stored, error) {
	var d document
	if err := json.Unmarshal([]byte(fields["claim"]), &d); err != nil {
		return stored{}, err
	}
	r := stored{Record: Record{
		Key: d.Key, Owner: d.Owner, Request: d.Request, State: State(fields["state"]), Fingerprint: d.Fingerprint,
	}}
	token, err1 := strconv.ParseInt(fields["token"], 10, 64)
	r.Token, r.ClaimedAt = token, time.UnixMicro(token).UTC()
	var err2 error
	if generation := fields["generation"]; generation == "" {
		r.only = true
	} else {
		r.Generation, err2 = strconv.Atoi(generation)
	}
	claimed, err3 := moment(fields["claimed_at"])
	if claimed != nil {
		r.ClaimedAt = *claimed
	}
	ended, err4 := moment(fields["ended_at"])
	until, err5 := moment(fields["until"])
	r.EndedAt, r.Until, r.died = ended, until, fields["died"] == "1"
	if text := fields["result"]; text != "" {
		if err := json.Unmarshal([]byte(text), &r.Result); err != nil {
			return stored{}, err
		}
	}
	return r, errors.Join(err1, err2, err3, err4, err5)
}

// moment reads a time in µs, nil where there is none.
func moment(us string) (*time.Time, error) {
	if us == "" {
		return nil, nil //nolint:nilnil // no time is a value here
	}
	n, err := strconv.ParseInt(us, 10, 64)
	t := time.UnixMicro(n).UTC()
	return &t, err
}

// bounded is a result within its bounds: texts for people are cut.
func (r Result) bounded() Result {
	r.Summary = cut(r.Summary, MaxSummary)
	if r.Cause != nil {
		cause := *r.Cause
		cause.Message = cut(cause.Message, maxMessage)
		r.Cause = &cause
	}
	return r
}

// encode writes a result within its bounds; outputs, which other steps rely on, are
// not cut but refused.
func (r Result) encode() (string, error) {
	size := 0
	for name, value := range r.Outputs {
		size += len(name) + len(value)
	}
	if size > MaxOutputs {
		return "", fmt.Errorf("%d bytes of outputs: more than %d go to the store, by reference", size, MaxOutputs)
	}
	b, err := json.Marshal(r.bounded())
	return string(b), err
}

// cut shortens s to at most n bytes, between characters.
func cut(s string, n int) string {
	const more = "…"
	if len(s) <= n {
		return s
	}
	n -= len(more)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + more
}

// over reports whether the record blocks and answers nobody any more.
func (r Record) over(now time.Time) bool {
	switch r.State {
	case Running:
		return false
	case Completed:
		return r.Until == nil || !r.Until.After(now)
	case Failed, Canceled:
		return r.EndedAt == nil || now.Sub(*r.EndedAt) >= lateFor
	case Released:
		return true
	}
	return true
}
