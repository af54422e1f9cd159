package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/run"
	"belay.run/internal/task"
	"belay.run/internal/tree"
)

// taskDocument is what `task run -o json` prints: what the task came to, and the
// names of its activity.
type taskDocument struct {
	ActivityID string `json:"activity_id"`
	RunID      string `json:"run_id,omitempty"`
	task.Result
}

// taskEnd is how a task ended, and the exit code that this is.
type taskEnd struct {
	result task.Result
	code   int
}

// ending makes one of what Temporal says. The error is one of asking it.
func (r *taskRun) ending(res *task.Result, err error) (taskEnd, error) {
	var (
		app        *temporal.ApplicationError
		canceled   *temporal.CanceledError
		terminated *temporal.TerminatedError
		late       *temporal.TimeoutError
	)
	switch {
	case err == nil:
		return taskEnd{result: *res}, nil
	case errors.As(err, &canceled):
		end := taskEnd{code: ExitCancelled}
		if !canceled.HasDetails() || canceled.Details(&end.result) != nil {
			end.result = r.without(task.Skipped, run.TriggerUser, "it was cancelled before it began")
		}
		return end, nil
	case errors.As(err, &terminated):
		return taskEnd{r.without(task.Failed, run.TriggerUser, "its activity was terminated"), ExitCancelled}, nil
	case errors.As(err, &late):
		return r.timedOut(late.TimeoutType()), nil
	case errors.As(err, &app):
		end := taskEnd{code: ExitFailed}
		if !app.HasDetails() || app.Details(&end.result) != nil || end.result.Status == "" {
			end.result = r.without(task.Failed, run.Trigger(app.Type()), app.Message())
		}
		if end.result.Error != nil && end.result.Error.Trigger == run.TriggerStepTimeout {
			end.code = ExitTimedOut
		}
		return end, nil
	}
	return taskEnd{}, fmt.Errorf("waiting for the end of the task: %w", err)
}

// timedOut is the end of a task that Temporal gave up.
func (r *taskRun) timedOut(kind enumspb.TimeoutType) taskEnd {
	switch kind {
	case enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START:
		return taskEnd{r.without(task.Skipped, run.TriggerDependencyUnavailable, "no worker took it in time: is one running?"), ExitUnreachable}
	case enumspb.TIMEOUT_TYPE_HEARTBEAT:
		return taskEnd{r.without(task.Failed, run.TriggerWorkerLost, "the worker that had it is gone: nobody knows whether it was done"), ExitFailed}
	default:
		return taskEnd{r.without(task.Failed, run.TriggerStepTimeout, "it was given up after "+taskWithin.String()), ExitTimedOut}
	}
}

// without is the result of a task of which no worker gave one.
func (r *taskRun) without(status task.Status, trigger run.Trigger, message string) task.Result {
	return task.Result{
		ID: r.task.ID, Type: r.task.Type, Status: status, Error: &task.Failure{Trigger: trigger, Message: message},
	}
}

// lastWords is the message of a failed attempt, without what Temporal says around
// it.
func lastWords(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return app.Message()
	}
	return err.Error()
}

// conclude shows what the task came to.
func (r *taskRun) conclude(end taskEnd) error {
	if *r.flags.output == formatJSON {
		if err := writeJSON(r.Out, taskDocument{ActivityID: r.id, RunID: r.handle.GetRunID(), Result: end.result}); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(r.progress(), taskSummary(&end)); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if end.code != ExitOK {
		return &ExitError{Code: end.code}
	}
	return nil
}

// taskSummary says how a task ended and what it found out. One that was cancelled
// while it ran failed by that, as its result has it.
func taskSummary(end *taskEnd) string {
	var b strings.Builder
	res := &end.result
	cancelled := end.code == ExitCancelled && res.Status == task.Failed
	if cancelled {
		b.WriteString(string(run.Cancelled))
	} else {
		b.WriteString(string(res.Status))
	}
	if res.Took > 0 {
		b.WriteString(" in " + tree.Duration(res.Took))
	}
	switch {
	case res.Error == nil:
	case cancelled:
		b.WriteString(": " + tree.Clean(res.Error.Message))
	default:
		b.WriteString(": " + tree.Clean(tree.CauseWords(&run.Cause{Trigger: res.Error.Trigger, Message: res.Error.Message}, "")))
	}
	if res.Status == task.Duplicate {
		b.WriteString(": its key was done, or is under way")
	}
	b.WriteByte('\n')
	for _, name := range slices.Sorted(maps.Keys(res.Output)) {
		fmt.Fprintf(&b, "  %s: %s\n", tree.Clean(name), tree.Clean(valueWords(res.Output[name])))
	}
	return b.String()
}

// valueWords is a value of an output as people read it: of JSON all numbers come
// as floating ones.
func valueWords(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}
