package executor

import (
	"container/heap"
	"context"
	"sync/atomic"
	"time"

	"belay.run/internal/dedup"
	"belay.run/internal/task"
)

// item is a task that was taken, until its result is given.
type item struct {
	task *task.Task
	job  task.Job
	// at is the name of the job's target.
	at string
	// ctx is its caller's. It waits with the task, since no goroutine does.
	ctx context.Context //nolint:containedctx // see above
	to  *sink
	seq uint64
	// lane is where it waits, nil when it does not; place is that in its lane
	// or among those that run.
	lane  *lane
	place int
	// target and tenant are its gates while it runs.
	target, tenant *gate
	queued, began  time.Time
	// timeout and window are what held when it began.
	timeout, window time.Duration
	// due is when it is given up on if its job has not returned.
	due time.Time
	// cancel tells its job to stop; nil before the job begins.
	cancel context.CancelFunc
	// report tells the target's breaker how it went; nil where there is none.
	report func(error)
	// claim is what holds its key; nil where it has none, or Redis was away.
	claim *dedup.Record
	// retried: an earlier attempt may have reached the target. again: this one may
	// have reached it more than once.
	retried bool
	again   atomic.Bool
	// given: its result was given before its job returned.
	given bool
	// fellBack: what it came to is its fallback's word.
	fellBack bool
}

// repeated reports whether the target may have it more than once.
func (it *item) repeated() bool { return it.retried || it.again.Load() }

// before orders what waits: higher priority first, then who came first.
func (it *item) before(other *item) bool {
	if it.task.Priority != other.task.Priority {
		return it.task.Priority > other.task.Priority
	}
	return it.seq < other.seq
}

func (it *item) moved(place int) { it.place = place }

// sink is where results go. Its channel has room for all.
type sink struct {
	results chan task.Result
	left    int
	// batch: it is of tasks that were submitted together.
	batch bool
	// unhook is called when the last result was given; may be nil.
	unhook func() bool
}

// give is called with the lock held.
func (s *sink) give(r task.Result) {
	s.results <- r
	if s.left--; s.left == 0 {
		close(s.results)
		if s.unhook != nil {
			s.unhook()
		}
	}
}

// lane holds the waiting tasks of one tenant for one target. All of them wait for
// the same things, so only the first need be looked at.
type lane struct {
	tenant, target *gate
	items          ranks[*item]
	// in is where the lane is: among those that may be ready, or parked at a
	// gate.
	in    *ranks[*lane]
	place int
}

func (l *lane) before(other *lane) bool { return l.items[0].before(other.items[0]) }
func (l *lane) moved(place int)         { l.place = place }

// to moves a lane; nil: nowhere.
func (l *lane) to(in *ranks[*lane]) {
	if l.in != nil {
		heap.Remove(l.in, l.place)
	}
	if l.in = in; in != nil {
		heap.Push(in, l)
	}
}

// ranked is what stands in order and knows its place.
type ranked[T any] interface {
	before(other T) bool
	moved(place int)
}

// ranks is a heap of such.
type ranks[T ranked[T]] []T

func (r ranks[T]) Len() int           { return len(r) }
func (r ranks[T]) Less(i, j int) bool { return r[i].before(r[j]) }

func (r ranks[T]) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].moved(i)
	r[j].moved(j)
}

// Push is for container/heap.
func (r *ranks[T]) Push(x any) {
	v := x.(T) //nolint:errcheck,forcetypeassert // what heap.Push was given
	v.moved(len(*r))
	*r = append(*r, v)
}

// Pop is for container/heap.
func (r *ranks[T]) Pop() any {
	last := len(*r) - 1
	v := (*r)[last]
	var none T
	(*r)[last] = none
	*r = (*r)[:last]
	return v
}
