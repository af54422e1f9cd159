package workflows

import (
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/run"
)

// outcome is how a step, or an activity beside steps, ended.
type outcome struct {
	status run.Status
	cause  *run.Cause
	result activities.StepResult
}

func (o outcome) bad() bool { return o.status.Bad() }

// readOutcome turns what Temporal says of an activity into an outcome of node.
func readOutcome(node string, res *activities.StepResult, err error) outcome {
	if err == nil {
		out := outcome{status: run.Succeeded, result: *res}
		if res.DuplicateOf != nil {
			out.status = run.Duplicate
		}
		return out
	}
	var (
		canceled *temporal.CanceledError
		app      *temporal.ApplicationError
		timeout  *temporal.TimeoutError
		out      outcome
	)
	switch {
	case errors.As(err, &canceled):
		out.status = run.Cancelled
		details(canceled, &out.result)
		return out
	case errors.Is(err, activities.ErrLost):
		out.cause = &run.Cause{Trigger: run.TriggerWorkerLost, Message: err.Error()}
	case errors.As(err, &app):
		out.cause = appCause(app)
		details(app, &out.result)
	case errors.As(err, &timeout):
		out.cause = timeoutCause(timeout)
		out.result.Attempt = lastAttempt(timeout)
	default:
		out.cause = &run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: err.Error()}
	}
	out.cause.Source = node
	out.status = out.cause.Trigger.Status()
	return out
}

// detailed is an error of Temporal's that carries a document.
type detailed interface {
	HasDetails() bool
	Details(d ...any) error
}

// details reads the document an error carries; one that carries none, or
// something else, leaves into as it is.
func details(err detailed, into any) bool {
	return err.HasDetails() && err.Details(into) == nil
}

// appCause is the cause an application error of ours names by its type. Any
// other type is a fault of the environment, not of the step.
func appCause(app *temporal.ApplicationError) *run.Cause {
	trigger := run.Trigger(app.Type())
	if !trigger.Known() {
		return &run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: app.Error()}
	}
	return &run.Cause{Trigger: trigger, Message: app.Message()}
}

// lastAttempt is which attempt of a step fell silent, as its last heartbeat said; 0
// where it said nothing.
func lastAttempt(t *temporal.TimeoutError) int {
	var last activities.Progress
	if !t.HasLastHeartbeatDetails() || t.LastHeartbeatDetails(&last) != nil {
		return 0
	}
	return last.Attempt
}

func timeoutCause(t *temporal.TimeoutError) *run.Cause {
	switch t.TimeoutType() {
	case enumspb.TIMEOUT_TYPE_HEARTBEAT:
		return &run.Cause{Trigger: run.TriggerWorkerLost, Message: "the worker stopped answering while the step ran"}
	case enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE:
		return &run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: "no worker took it in time"}
	case enumspb.TIMEOUT_TYPE_START_TO_CLOSE, enumspb.TIMEOUT_TYPE_UNSPECIFIED:
		return &run.Cause{Trigger: run.TriggerStepTimeout, Message: "it did not end in the time that Temporal allows it"}
	}
	return &run.Cause{Trigger: run.TriggerStepTimeout, Message: t.Error()}
}

// closeAs is what a workflow returns for a document in a final state: nil where
// it went well, a canceled error, or an application error typed by the trigger,
// so that Temporal shows Completed, Canceled or Failed. The document travels in
// the details.
func closeAs(status run.Status, cause *run.Cause, document any) error {
	switch status {
	case run.Succeeded, run.Skipped, run.Duplicate:
		return nil
	case run.Cancelled:
		return temporal.NewCanceledError(document)
	case run.Failed, run.TimedOut, run.Pending, run.Running, run.Cancelling:
	}
	return temporal.NewApplicationErrorWithOptions(cause.String(), string(cause.Trigger),
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{document}})
}

// readStage fills the document of a stage whose workflow ended with err, and
// returns its steps. A stage that left no document (terminated, or never
// started) is described from the error.
func readStage(doc *run.Stage, res *run.Stage, err error) []run.Step {
	if err == nil {
		return adopt(doc, res)
	}
	var (
		canceled   *temporal.CanceledError
		app        *temporal.ApplicationError
		terminated *temporal.TerminatedError
		left       run.Stage
	)
	switch {
	case errors.As(err, &app) && details(app, &left), errors.As(err, &canceled) && details(canceled, &left):
		return adopt(doc, &left)
	case errors.As(err, &terminated):
		doc.Status = run.Cancelled
		doc.Cause = &run.Cause{Trigger: run.TriggerUser, Source: doc.Node, Message: "its workflow was terminated"}
	case errors.As(err, &canceled):
		doc.Status = run.Cancelled
	default:
		doc.Status = run.Failed
		doc.Cause = &run.Cause{
			Trigger: run.TriggerDependencyUnavailable, Source: doc.Node,
			Message: fmt.Sprintf("its workflow ended without a result: %v", err),
		}
	}
	return nil
}

// adopt takes over what a stage says of itself. Its steps and their outputs are
// not kept in the pipeline's document: they lie in the stage's own result.
func adopt(doc, from *run.Stage) []run.Step {
	id, runID := doc.WorkflowID, doc.RunID
	*doc = *from
	doc.WorkflowID, doc.RunID, doc.Steps, doc.Outputs = id, runID, nil, nil
	return from.Steps
}
