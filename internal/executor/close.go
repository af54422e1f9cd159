package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// closedUp is why a task was skipped when the executor closed.
const closedUp = "the worker stopped before it began"

var errClosed = errors.New("the executor was closed")

// Close takes no more tasks, and returns when those that it holds have ended. When
// ctx ends before, it hands them back: what has not begun is skipped, what runs is
// stopped and fails with the trigger maintenance; it then returns an error that
// says how many. It is safe to call twice.
func (e *Executor) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closing = true
	if e.held == 0 {
		e.allGiven()
	}
	e.mu.Unlock()
	defer e.minding.Wait()
	defer e.stopMinding(errClosed)
	select {
	case <-e.empty:
		return nil
	case <-ctx.Done():
	}
	waited, ran := e.handBack()
	if waited+ran == 0 {
		return nil
	}
	// Those that run stop at once, or are given up on; how they ended may still
	// be on its way to Redis.
	if !e.awaitEmpty(grace) {
		e.giveUp(func(*item) bool { return true })
		e.awaitEmpty(patience)
	}
	return fmt.Errorf("closing the executor: %d light tasks that waited were skipped, %d that ran were stopped: %w", waited, ran, context.Cause(ctx))
}

// awaitEmpty waits until all results were given, and reports whether they were.
func (e *Executor) awaitEmpty(most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-e.empty:
		return true
	case <-timer.C:
		return false
	}
}

// handBack skips what waits and stops what runs.
func (e *Executor) handBack() (waited, ran int) {
	e.mu.Lock()
	defer e.unlock()
	e.handedBack = true
	waited, ran = e.waiting, len(e.running)
	now := time.Now()
	for _, l := range e.lanes {
		for _, it := range slices.Clone(l.items) {
			e.skip(it, run.TriggerMaintenance, closedUp, now)
		}
	}
	for _, it := range e.running {
		if it.cancel != nil {
			it.cancel()
		}
	}
	return waited, ran
}

// giveUp gives the results of jobs that do not return though they should have.
func (e *Executor) giveUp(which func(it *item) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, it := range e.running {
		if it.given || !which(it) {
			continue
		}
		e.log.Warn("a light task does not stop", fields(it)...)
		it.given = true
		r := task.Result{
			ID: it.task.ID, Type: it.task.Type, Status: task.Failed, Error: e.notReturned(it), Retried: it.repeated(),
			Waited: it.began.Sub(it.queued), Took: time.Since(it.began),
		}
		e.give(it, r)
	}
}

// notReturned is why a task failed whose job was given up on.
func (e *Executor) notReturned(it *item) *task.Failure {
	switch {
	case it.ctx.Err() != nil:
		return cutShort(it.ctx)
	case e.handedBack:
		return handed()
	}
	return &task.Failure{
		Trigger: run.TriggerStepTimeout, Retryable: true,
		Message: fmt.Sprintf("it did not end within %s, nor when it was told to stop", it.timeout),
	}
}
