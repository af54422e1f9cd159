package executor

import "belay.run/internal/task"

// Observer hears what an executor does, for metrics. Its methods are called where
// tasks run, and some with the executor's lock held: they return at once, call
// nothing of the executor, and may be called concurrently.
type Observer interface {
	// Ended is called with the result of each task that was taken.
	Ended(r *task.Result)
	// Refused is called for each task that was not.
	Refused(reason Reason)
	// Limited is called when tasks begin to wait since a bucket is empty.
	Limited(scope Scope)
	// Tripped is called when the circuit of a target opens.
	Tripped()
	// Stopped is called for each task that failed at once as the circuit of its
	// target was open.
	Stopped()
	// Unclaimed is called for each task that ran without its claim, as Redis
	// was away.
	Unclaimed()
	// Batched is called when a batch of so many tasks begins.
	Batched(tasks int)
	// Loaded is called when limits were set, or refused.
	Loaded(ok bool)
}

// Scope is what a limit is of.
type Scope string

// The scopes.
const (
	Whole     Scope = "global"
	PerTenant Scope = "tenant"
	PerTarget Scope = "target"
)

// Scopes lists all scopes.
func Scopes() []Scope { return []Scope{Whole, PerTenant, PerTarget} }

// nobody hears nothing.
type nobody struct{}

var _ Observer = nobody{}

func (nobody) Ended(*task.Result) {}
func (nobody) Refused(Reason)     {}
func (nobody) Limited(Scope)      {}
func (nobody) Tripped()           {}
func (nobody) Stopped()           {}
func (nobody) Unclaimed()         {}
func (nobody) Batched(int)        {}
func (nobody) Loaded(bool)        {}
