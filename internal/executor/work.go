package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/run"
	"belay.run/internal/task"
	"belay.run/internal/tracing"
)

const (
	// grace is how long a job has to return when it was told to stop. After that
	// it is given up on: its result is given, and its slot is free when it does
	// return.
	grace = time.Second
	// maxOutput is about how many bytes an output may have.
	maxOutput = 64 << 10
)

// work runs a task, and then those that may run when it has ended: a goroutine
// that has run a task has the stack for the next.
//
//nolint:contextcheck,nolintlint // each task runs in its own caller's context; that this is heeded at the calls, nolintlint does not see
func (e *Executor) work(it *item) {
	defer func() {
		if it == nil {
			return
		}
		// The job has ended its goroutine: the others need a new one.
		if next := e.finish(it, crashed(it, "it ended its goroutine"), errUntimely); next != nil {
			go e.work(next)
		}
	}()
	for it != nil {
		r, verdict := e.perform(it)
		it = e.finish(it, r, verdict)
	}
}

// perform runs a task that was started, and says what the breaker is to hear of it.
func (e *Executor) perform(it *item) (task.Result, error) {
	origin := it.task.Origin
	if it.task.Key != "" {
		answer, ok := e.keys.claim(it, &origin)
		if ok {
			return answer, errUntimely
		}
	}
	if it.ctx.Err() != nil {
		return skipped(it.task, run.TriggerUser, givenUp, it.began.Sub(it.queued)), errUntimely
	}
	ctx, cancel := context.WithTimeoutCause(it.ctx, it.timeout, errTimeout)
	defer cancel()
	e.begin(it, cancel)
	ctx, span := e.trace(ctx, it, &origin)
	out, err := e.call(task.NoteAgain(ctx, &it.again), it, origin)
	r := task.Result{
		ID: it.task.ID, Type: it.task.Type, Status: task.Succeeded, Output: out, Retried: it.repeated(),
		Waited: it.began.Sub(it.queued), Took: time.Since(it.began),
	}
	f := e.failure(ctx, it, err)
	if f == nil && size(out) > maxOutput {
		f = task.Failf(run.TriggerLimitExceeded, "its output has more than %d bytes", maxOutput)
	}
	if span != nil {
		traceEnd(span, f)
	}
	if f == nil {
		return r, nil
	}
	r.Status, r.Output, r.Error = task.Failed, nil, f
	var verdict error
	switch {
	case f.Fault:
		verdict = f
	case ctx.Err() != nil || f.Trigger == run.TriggerProcessCrashed: // the target had no part in it
		verdict = errUntimely
	}
	e.fallBack(it, &r)
	return r, verdict
}

var errTimeout = errors.New("its timeout is over")

// begin notes that a job is about to begin.
func (e *Executor) begin(it *item, cancel context.CancelFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	it.cancel = cancel
	it.due = time.Now().Add(it.timeout + grace)
	if e.handedBack {
		cancel()
	}
}

// call runs the job, and survives it.
func (e *Executor) call(ctx context.Context, it *item, origin task.Origin) (out task.Output, err error) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("a light task panicked", append(fields(it),
				zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))...)
			why := "the log of the worker has the stack"
			if bug, ok := p.(runtime.Error); ok {
				why = bug.Error()
			}
			err = crashed(it, why).Error
		}
	}()
	return it.job.Run(ctx, origin)
}

// crashed is the result of a task whose job did not return.
func crashed(it *item, why string) task.Result {
	return task.Result{
		ID: it.task.ID, Type: it.task.Type, Status: task.Failed,
		Error: task.Failf(run.TriggerProcessCrashed, "the task's type has a fault: it panicked: %s", why), Retried: it.repeated(),
		Waited: it.began.Sub(it.queued), Took: time.Since(it.began),
	}
}

// failure is why a job that has returned failed, nil if it did not. What a job
// says itself holds, unless it only says that it was told to stop.
func (e *Executor) failure(ctx context.Context, it *item, err error) *task.Failure {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*task.Failure](err); ok {
		if own == nil {
			return nil // a failure that is none, in an error that is one
		}
		if ctx.Err() == nil || own.Trigger != run.TriggerDependencyUnavailable && own.Trigger != run.TriggerStepTimeout {
			return own
		}
	}
	switch {
	case it.ctx.Err() != nil:
		return cutShort(it.ctx) //nolint:contextcheck // what counts is how its caller's ended
	case ctx.Err() == nil:
		return task.Failf(run.TriggerExitCode, "%v", err)
	case errors.Is(context.Cause(ctx), errTimeout):
		return &task.Failure{
			Trigger: run.TriggerStepTimeout, Retryable: true, Fault: true,
			Message: fmt.Sprintf("no answer from %s within %s", named(it.at), it.timeout),
		}
	}
	return handed()
}

func named(target string) string {
	if target == "" {
		return "it"
	}
	return target
}

// cutShort is why a task failed whose caller went away while it ran.
func cutShort(ctx context.Context) *task.Failure {
	trigger, why := run.TriggerUser, "its caller gave up while it ran"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		trigger, why = run.TriggerStepTimeout, "its caller's time was over while it ran"
	}
	f := task.Failf(trigger, "%s", why)
	f.Retryable = true
	return f
}

// handed is why a task failed that ran when the executor had to end.
func handed() *task.Failure {
	f := task.Failf(run.TriggerMaintenance, "the worker stopped while it ran")
	f.Retryable = true
	return f
}

// size is about how many bytes an output has.
func size(out task.Output) int {
	n := 0
	for name, v := range out {
		n += len(name)
		if s, ok := v.(string); ok {
			n += len(s)
		}
	}
	return n
}

// finish ends a task that ran, and returns the next for this goroutine to run, nil
// if there is none.
func (e *Executor) finish(it *item, r task.Result, verdict error) *item {
	e.mu.Lock()
	now := time.Now()
	e.stop(it, verdict, now)
	claim := it.claim
	if !it.given && claim == nil {
		e.give(it, r)
	}
	next := e.fill(now)
	e.unlock()
	if claim != nil {
		e.keys.settle(it, &r, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if !it.given {
				e.give(it, r)
			}
		})
	}
	return next
}

// note writes a line for a task, with whom it was for.
func (e *Executor) note(it *item, r *task.Result) {
	entry := e.log.Check(zap.DebugLevel, "light task ended")
	if entry == nil {
		return
	}
	more := append(fields(it), zap.String("status", string(r.Status)), zap.Duration("waited", r.Waited), zap.Duration("took", r.Took))
	if r.Error != nil {
		more = append(more, zap.String("trigger", string(r.Error.Trigger)), zap.Error(r.Error))
	}
	entry.Write(more...)
}

// fields say which task it is, and for whom.
func fields(it *item) []zap.Field {
	o := &it.task.Origin
	return []zap.Field{
		zap.String("tenant", o.Tenant), zap.String("project", o.Project), zap.String("pipeline", o.Pipeline),
		zap.String("run", o.Run), zap.String("node", o.Node), zap.String("trace_id", tracing.TraceID(o.TraceParent)),
		zap.String("task", it.task.ID), zap.String("type", it.task.Type), zap.String("target", it.at),
	}
}
