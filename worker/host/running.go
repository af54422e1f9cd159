package host

import (
	"context"
	"sync"

	"go.temporal.io/sdk/interceptor"
)

// running counts the activities that run on the host's queue: when the SDK has
// stopped a worker, its activities may still be at it.
type running struct {
	interceptor.WorkerInterceptorBase

	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0; nil while nobody waits
}

var _ interceptor.WorkerInterceptor = (*running)(nil)

// InterceptActivity counts around every activity.
func (r *running) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &countedActivity{running: r}
	i.Next = next
	return i
}

type countedActivity struct {
	interceptor.ActivityInboundInterceptorBase

	running *running
}

// ExecuteActivity runs the activity between one up and one down.
func (a *countedActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	a.running.add(1)
	defer a.running.add(-1)
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
