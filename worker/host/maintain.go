package host

import (
	"context"
	"errors"
	"time"

	"belay.run/internal/config"
)

const (
	// lookEvery is how often the services are looked at.
	lookEvery = 10 * time.Second
	// sweepEvery is how often what ended stages left is looked for, and
	// sweepDraining the same while a drain waits for it.
	sweepEvery    = 15 * time.Second
	sweepDraining = 3 * time.Second
)

// errStopped is why things end when the worker does.
var errStopped = errors.New("the worker stopped")

// background runs what a worker does beside its work, until the function that it
// returns is called, which waits for the end of that.
func background(f func(context.Context)) (stop func() error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() error {
		cancel(errStopped)
		<-done
		return nil
	}
}

// maintain sweeps at once and then now and then, and looks at the services, until
// ctx ends.
func (w *Worker) maintain(ctx context.Context) {
	look, sweep := time.NewTicker(lookEvery), time.NewTicker(sweepDraining)
	defer look.Stop()
	defer sweep.Stop()
	w.stages.sweep(ctx)
	swept := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			w.look(ctx)
			w.restoreClaims(ctx)
		case <-sweep.C:
			if w.state.is(StatusDraining) || time.Since(swept) >= sweepEvery {
				w.stages.sweep(ctx)
				swept = time.Now()
			}
		}
	}
}

// look notes which services answer.
func (w *Worker) look(ctx context.Context) {
	var unreachable *config.UnreachableError
	if err := w.deps.temporal.Check(ctx); errors.As(err, &unreachable) {
		w.waiting(unreachable, lookEvery)
	} else {
		w.answers("Temporal")
	}
	if w.deps.redis == nil {
		return
	}
	if err := ping(ctx, w.deps.redis, w.cfg.Settings.RedisURL); err != nil {
		w.waiting(err, lookEvery)
	} else {
		w.answers("Redis")
	}
}
