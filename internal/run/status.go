// Package run holds the words every part of Belay shares about a run: the
// states of its nodes, why one stopped, how nodes and workflows are named, and
// the documents that describe a run to people and programs.
package run

// Status is the state of a pipeline, stage or step. Terminal states never
// change.
type Status string

// The states of a node, in the order it can pass through them.
const (
	Pending    Status = "pending"
	Running    Status = "running"
	Cancelling Status = "cancelling"
	Succeeded  Status = "succeeded"
	Failed     Status = "failed"
	TimedOut   Status = "timed_out"
	Cancelled  Status = "cancelled"
	Skipped    Status = "skipped"
	Duplicate  Status = "duplicate"
)

// Statuses lists every state, for schemas and for checking comparisons.
func Statuses() []Status {
	return []Status{Pending, Running, Cancelling, Succeeded, Failed, TimedOut, Cancelled, Skipped, Duplicate}
}

// Terminal reports whether s is final.
func (s Status) Terminal() bool {
	switch s {
	case Succeeded, Failed, TimedOut, Cancelled, Skipped, Duplicate:
		return true
	case Pending, Running, Cancelling:
		return false
	}
	return false
}

// OK reports whether a node that ended in s lets what needs it go on. Whether a
// skipped node does depends on why it was skipped, so it is not OK by itself.
func (s Status) OK() bool {
	return s == Succeeded || s == Duplicate
}

// Bad reports whether s is an ending that counts against the parent.
func (s Status) Bad() bool {
	return s == Failed || s == TimedOut || s == Cancelled
}
