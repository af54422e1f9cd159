package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/dedup"
	"belay.run/internal/executor"
	"belay.run/internal/pause"
	"belay.run/internal/run"
	"belay.run/internal/task"
)

// roomWait is how long a task waits for room among the light tasks of a worker.
const roomWait = 55 * time.Minute

// RunTask runs one light task that belongs to no pipeline. A failure is an
// application error of the task's trigger with its [task.Result] in the details;
// Temporal tries it again, where it may, if that may help.
func (l *Light) RunTask(ctx context.Context, t task.Task) (*task.Result, error) {
	attempt := int(activity.GetInfo(ctx).Attempt)
	progress := progress{now: Progress{Phase: PhaseRunning, Since: time.Now(), Attempt: attempt}}
	defer progress.beating(ctx)()
	t.Origin = singly(ctx, &t, attempt)
	if l.cfg.Executor == nil {
		return nil, fail(run.Cause{Trigger: run.TriggerInvalid, Message: "this worker takes no light tasks"})
	}
	r, err := submit(ctx, l.cfg.Executor, t, func(name string) {
		progress.set(Progress{Phase: PhaseFull, Since: time.Now(), Name: name, Attempt: attempt})
	})
	r.Retried = r.Retried || attempt > 1 && r.Status != ""
	if err == nil && r.Error != nil {
		err = stepFailure(r.Error)
	}
	return reportTask(ctx, &r, err)
}

// singly is for whom a task runs that is neither a step nor a part of a batch. An
// idempotency key is the same for all attempts, a trace has a span for each.
func singly(ctx context.Context, t *task.Task, attempt int) task.Origin {
	o := t.Origin
	of := cmp.Or(o.Run, "task")
	if o.IdempotencyKey == "" {
		o.IdempotencyKey = dedup.RunIdempotencyKey(of, t.ID)
	}
	if o.TraceParent == "" {
		o.TraceParent = parentOf(ctx, of+"/"+t.ID, strconv.Itoa(attempt))
	}
	return o
}

// reportTask tells Temporal what a task came to.
func reportTask(ctx context.Context, r *task.Result, err error) (*task.Result, error) {
	if err == nil {
		return r, nil
	}
	stop := classify(context.Cause(ctx))
	if stop != nil && stop.kind == stopCancelled {
		return nil, temporal.NewCanceledError(r)
	}
	cause := new(attempt).causeOf(err)
	if _, again := errors.AsType[*retryableError](err); again || stop != nil {
		return nil, failRetryable(*cause, r)
	}
	return nil, fail(*cause, r)
}

// submit hands a task on, and waits while there is no room for it. Full is told
// so.
func submit(ctx context.Context, to Submitter, t task.Task, full func(name string)) (task.Result, error) {
	for until := time.Now().Add(roomWait); ; {
		r, err := to.Submit(ctx, t)
		refused, ok := errors.AsType[*executor.RefusedError](err)
		switch {
		case err == nil:
			return r, nil
		case !ok:
			if f, wrong := errors.AsType[*task.Failure](err); wrong {
				return r, stepFailure(f)
			}
			return r, &retryableError{err}
		case refused.Reason == executor.Closing:
			return r, stepFailure(&task.Failure{Trigger: run.TriggerMaintenance, Message: refused.Error(), Retryable: true})
		case time.Now().After(until):
			return r, failed(run.TriggerLimitExceeded, "waited %s for room among the light tasks of this worker", roomWait)
		}
		full(t.Type)
		if err := pause.For(ctx, refused.RetryAfter); err != nil {
			return r, err
		}
	}
}

// stepFailure is the failure of a task as that of a step, which its retry holds
// for unless the step itself is wrong.
func stepFailure(f *task.Failure) error {
	err := failed(f.Trigger, "%s", f.Message)
	if f.Retryable || f.Trigger == run.TriggerExitCode {
		return &retryableError{err}
	}
	return err
}

// task is the step as its type knows it. The step's key is none of the task's: it
// is claimed already.
func (in *LightInput) task(ctx context.Context, held *dedup.Record, attempt int) (task.Task, error) {
	with, err := json.Marshal(in.With)
	if err != nil {
		return task.Task{}, failed(run.TriggerInvalid, "with: %v", err)
	}
	t := task.Task{ID: in.Node, Type: in.Uses, With: with, Timeout: in.Timeout}
	if len(in.With) == 0 {
		t.With = nil
	}
	if in.Origin != nil {
		t.Origin = *in.Origin
	}
	t.Origin.Listed = append([]string{}, in.Secrets...) // of a step never nil
	t.Origin.IdempotencyKey = dedup.RunIdempotencyKey(t.Origin.Run, in.Node)
	if held != nil {
		t.Origin.IdempotencyKey = dedup.IdempotencyKey(*held)
	}
	t.Origin.TraceParent = parentOf(ctx, t.Origin.Run, in.Node+"#"+strconv.Itoa(attempt))
	return t, nil
}

// handOver makes outputs of what the task found out: those that the step declares,
// as text. What a task may leave out is an empty one.
func (a *lightAttempt) handOver(found task.Output) error {
	if len(a.in.Outputs) == 0 {
		return nil
	}
	out, size := make(map[string]string, len(a.in.Outputs)), 0
	for _, name := range a.in.Outputs {
		text := ""
		if v, ok := found[name]; ok {
			text = fmt.Sprint(v)
		}
		if a.mask.Contains(text) {
			return failed(run.TriggerInvalid, "outputs: %q holds a secret, which would be recorded for all to read", name)
		}
		out[name] = text
		size += len(name) + len(text)
	}
	if size > maxOutputs {
		return failed(run.TriggerInvalid, "outputs: %d bytes; a step may hand over %d", size, maxOutputs)
	}
	a.res.Outputs = out
	return nil
}
