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

	until context.Context //nolint:containedctx // ends with the worker, not with a call
	end   context.CancelCauseFunc

	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0; nil while nobody waits
}

var _ interceptor.WorkerInterceptor = (*running)(nil)

func newRunning() *running {
	r := new(running)
	r.until, r.end = context.WithCancelCause(context.Background())
	return r
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

// ExecuteActivity counts the activity and lets its context end with the worker.
// It must not be the context that the SDK hands to all of a worker's activities
// which ends: with that one the SDK reports their results.
func (a *countedActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	a.running.add(1)
	defer a.running.add(-1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	until := a.running.until
	defer context.AfterFunc(until, func() { cancel(context.Cause(until)) })() //nolint:contextcheck // two contexts end it
	return a.Next.ExecuteActivity(ctx, in)
}

func (r *running) add(d int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n += d; r.n == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// wait returns when nothing runs, or with the context's error and how many
// still do.
func (r *running) wait(ctx context.Context) (left int, err error) {
	r.mu.Lock()
	if r.n == 0 {
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
		return r.n, context.Cause(ctx)
	}
}
