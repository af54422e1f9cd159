package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
// application error of the task's trigger with its [task.Result] in the details.
func (l *Light) RunTask(ctx context.Context, t task.Task) (*task.Result, error) {
	progress := progress{now: Progress{Phase: PhaseRunning, Since: time.Now(), Attempt: int(activity.GetInfo(ctx).Attempt)}}
	defer progress.beating(ctx)()
	if t.Origin.IdempotencyKey == "" {
		t.Origin.IdempotencyKey = dedup.RunIdempotencyKey("task", t.ID)
	}
	if t.Origin.TraceParent == "" {
		t.Origin.TraceParent = traceParent(t.ID, "")
	}
	if l.cfg.Executor == nil {
		return nil, fail(run.Cause{Trigger: run.TriggerInvalid, Message: "this worker takes no light tasks"})
	}
	r, err := submit(ctx, l.cfg.Executor, t, func(name string) {
		progress.set(Progress{Phase: PhaseFull, Since: time.Now(), Name: name})
	})
	if err == nil && r.Error != nil {
		err = stepFailure(r.Error)
	}
	if err == nil {
		return &r, nil
	}
	if stop := classify(context.Cause(ctx)); stop != nil && stop.kind == stopCancelled {
		return nil, temporal.NewCanceledError(r)
	}
	return nil, fail(*new(attempt).causeOf(err), r)
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
func (in *LightInput) task(held *dedup.Record, attempt int) (task.Task, error) {
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
	t.Origin.IdempotencyKey = dedup.RunIdempotencyKey(t.Origin.Run, in.Node)
	if held != nil {
		t.Origin.IdempotencyKey = dedup.IdempotencyKey(*held)
	}
	t.Origin.TraceParent = traceParent(t.Origin.Run, in.Node+"#"+strconv.Itoa(attempt))
	return t, nil
}

// traceParent is a W3C trace context: one trace a run, in it one span for each of
// its tasks and their attempts.
func traceParent(runKey, span string) string {
	trace, part := sha256.Sum256([]byte(runKey)), sha256.Sum256([]byte(runKey+"/"+span))
	return "00-" + hex.EncodeToString(trace[:16]) + "-" + hex.EncodeToString(part[:8]) + "-01"
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
