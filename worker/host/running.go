package host

import (
	"context"
	"sync"

	"go.temporal.io/sdk/interceptor"
)

// running knows the activities that run on the host's queue, and can end them:
// the SDK's worker ends them no sooner than its stop timeout, and then does not
// wait for them.
type running struct {
	interceptor.WorkerInterceptorBase

	mu     sync.Mutex
	next   int
	active map[int]context.CancelCauseFunc
	over   error         // why they end; nil while they may run
	idle   chan struct{} // closed when none is active; nil while nobody waits
}

var _ interceptor.WorkerInterceptor = (*running)(nil)

func newRunning() *running {
	return &running{active: make(map[int]context.CancelCauseFunc)}
}

// InterceptActivity comes between the worker and every activity.
func (r *running) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &countedActivity{running: r}
	i.Next = next
	return i
}

type countedActivity struct {
	interceptor.ActivityInboundInterceptorBase

	running *running
}

// ExecuteActivity counts the activity and gives it a context that can be ended.
// It is not the SDK's own context which ends: with that one the SDK reports the
// result.
func (a *countedActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.running.enter(cancel)()
	return a.Next.ExecuteActivity(ctx, in)
}

// enter notes an activity until leave is called.
func (r *running) enter(cancel context.CancelCauseFunc) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	id := r.next
	r.active[id] = cancel
	if r.over != nil {
		cancel(r.over)
	}
	return func() { r.leave(id) }
}

func (r *running) leave(id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.active, id)
	if len(r.active) == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// end ends all activities, and those that come later at once, with that cause.
func (r *running) end(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = cause
	for _, cancel := range r.active {
		cancel(cause)
	}
}

// wait returns when nothing runs, or with the context's error and how many
// still do.
func (r *running) wait(ctx context.Context) (left int, err error) {
	r.mu.Lock()
	if len(r.active) == 0 {
		r.mu.Unlock()
		return 0, nil
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
		return 0, nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.active), context.Cause(ctx)
	}
}
