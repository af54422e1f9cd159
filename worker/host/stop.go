package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/worker"
	"go.uber.org/zap"
)

// stopWithin bounds a stop: what the SDK's workers take, and a little more.
const stopWithin = stopTimeout + 10*time.Second

// Stop ends everything at once: activities are told that their worker stops,
// the workers stop, the process trees of steps are ended, and what the worker
// opened is closed. It may be called at any time, and more than once. When ctx
// ends first, the process trees are ended all the same.
func (w *Worker) Stop(ctx context.Context) error {
	w.stopOnce.Do(func() { w.stopErr = w.stop(ctx) })
	return w.stopErr
}

func (w *Worker) stop(ctx context.Context) error {
	w.state.set(StatusStopped)
	w.running.end(worker.ErrWorkerShutdown)
	var wg sync.WaitGroup
	wg.Go(w.queues.steps.stop)
	wg.Go(w.queues.rest.stop)
	wg.Wait()
	var errs []error
	if left, err := w.running.wait(ctx); err != nil {
		errs = append(errs, fmt.Errorf("stopping: %d activities have not ended: %w", left, err))
	}
	errs = append(errs, w.close())
	err := errors.Join(errs...)
	w.log.Info("stopped", zap.Error(err))
	return err
}

// Run starts the worker, and drains and stops it when ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	return w.run(ctx, context.WithoutCancel(ctx))
}

// run is Run with a second context, whose end hurries up the drain.
func (w *Worker) run(ctx, hurry context.Context) error {
	err := w.Start(ctx)
	if err == nil {
		select {
		case err = <-w.failed:
		case <-ctx.Done():
			err = w.Drain(hurry)
		}
	} else if ctx.Err() != nil {
		err = nil // asked to stop while it waited
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	return errors.Join(err, w.Stop(stopCtx))
}
