package executor

import (
	"fmt"
	"time"
)

// Reason is why a task was not taken.
type Reason string

// The reasons.
const (
	// QueueFull: as many tasks wait as may.
	QueueFull Reason = "queue_full"
	// TargetFull: as many wait for this target as may wait for one.
	TargetFull Reason = "target_full"
	// Closing: the executor takes no more tasks.
	Closing Reason = "closing"
)

// Reasons lists all reasons.
func Reasons() []Reason { return []Reason{QueueFull, TargetFull, Closing} }

// RefusedError says that a task was not taken, and nothing of it was done.
type RefusedError struct {
	Reason Reason
	// RetryAfter is when it is worth asking again, by how fast the queue drains
	// now.
	RetryAfter time.Duration
}

// Error says why, and what to do.
func (e *RefusedError) Error() string {
	switch e.Reason {
	case QueueFull:
		return fmt.Sprintf("the queue of light tasks is full: try again in %s", e.RetryAfter)
	case TargetFull:
		return fmt.Sprintf("as many light tasks wait for this target as may: try again in %s", e.RetryAfter)
	case Closing:
		return fmt.Sprintf("light tasks are not taken any more, as the worker stops: try again in %s, with another", e.RetryAfter)
	}
	return "the task was refused: " + string(e.Reason)
}
