package runs

import (
	"context"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/run"
)

// ending is how a workflow ended, as far as its document does not say.
type ending struct {
	// read is set when the workflow left its document.
	read   bool
	status run.Status
	cause  *run.Cause
}

// result reads the document that a closed workflow left: its result, or the
// details of its error. No worker is needed for it.
func (c *Client) result(ctx context.Context, ref Ref, into any) (ending, error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	err := c.temporal.GetWorkflow(ctx, ref.ID, ref.RunID).Get(ctx, into)
	if err == nil {
		return ending{read: true, status: run.Succeeded}, nil
	}
	var failed *temporal.WorkflowExecutionError
	if !errors.As(err, &failed) {
		return ending{}, fmt.Errorf("reading the end of %s: %w", ref.ID, err)
	}
	var (
		canceled   *temporal.CanceledError
		app        *temporal.ApplicationError
		timeout    *temporal.TimeoutError
		terminated *temporal.TerminatedError
	)
	switch {
	case errors.As(err, &terminated):
		return c.terminated(ctx, ref)
	case errors.As(err, &canceled):
		return ending{read: details(canceled, into), status: run.Cancelled, cause: &run.Cause{Trigger: run.TriggerUser}}, nil
	case errors.As(err, &app):
		return ending{read: details(app, into), status: run.Failed, cause: appCause(app)}, nil
	case errors.As(err, &timeout):
		return ending{status: run.TimedOut, cause: &run.Cause{
			Trigger: run.TriggerPipelineTimeout, Message: "Temporal ended the workflow: its execution timeout is over",
		}}, nil
	}
	return ending{status: run.Failed, cause: &run.Cause{Trigger: run.TriggerInvalid, Message: failed.Error()}}, nil
}

// detailed is an error of Temporal's that carries a document.
type detailed interface {
	HasDetails() bool
	Details(d ...any) error
}

func details(err detailed, into any) bool {
	return err.HasDetails() && err.Details(into) == nil
}

func appCause(app *temporal.ApplicationError) *run.Cause {
	if t := run.Trigger(app.Type()); t.Known() {
		return &run.Cause{Trigger: t, Message: app.Message()}
	}
	return &run.Cause{Trigger: run.TriggerInvalid, Message: app.Error()}
}

// terminated says who terminated a workflow and why, which only its last event
// tells. A terminated workflow left no document.
func (c *Client) terminated(ctx context.Context, ref Ref) (ending, error) {
	events := c.temporal.GetWorkflowHistory(ctx, ref.ID, ref.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	end := ending{status: run.Cancelled, cause: &run.Cause{Trigger: run.TriggerUser, Message: "terminated"}}
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return ending{}, fmt.Errorf("reading the end of %s: %w", ref.ID, err)
		}
		if attrs := event.GetWorkflowExecutionTerminatedEventAttributes(); attrs != nil {
			end.cause.By = attrs.GetIdentity()
			if attrs.GetReason() != "" {
				end.cause.Message = "terminated: " + attrs.GetReason()
			}
		}
	}
	return end, nil
}
