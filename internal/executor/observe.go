package executor

import (
	"time"

	"belay.run/internal/task"
)

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

// Status is what an executor does now.
type Status struct {
	// Status is running, closing or closed.
	Status string `json:"status"`
	// Executor is its kind: coroutine.
	Executor string `json:"executor"`
	Running  int    `json:"running"`
	// Concurrency is how many may run now: Limit, or fewer where the process has
	// not the files for more, or while it is short of CPU.
	Concurrency int `json:"concurrency"`
	Limit       int `json:"limit"`
	// Waiting are tasks that wait, those of batches included; Queue is how many
	// that were submitted one by one may.
	Waiting int `json:"waiting"`
	Queue   int `json:"queue"`
	// Done is how many tasks have ended, Rate how many end in a second.
	Done uint64  `json:"done"`
	Rate float64 `json:"rate"`
	// Delay is how long goroutines that could run wait for a CPU, at the 99th
	// percentile.
	Delay time.Duration `json:"scheduling_delay_ns"`
	// Breakers is how many targets' circuits are in each state.
	Breakers Breakers `json:"breakers"`
	// Open are targets whose circuits are not closed, 100 at most, by name.
	Open []string `json:"open,omitempty"`
}

// Breakers counts circuits by state.
type Breakers struct {
	Closed   int `json:"closed"`
	HalfOpen int `json:"half_open"`
	Open     int `json:"open"`
}

// Status returns what the executor does now.
func (e *Executor) Status() Status { return Status{Status: "running", Executor: "coroutine"} }
