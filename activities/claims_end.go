package activities

import (
	"context"
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/dedup"
	"belay.run/internal/run"
)

// reached reports whether an error of waiting for a workflow says how it ended,
// or that there is none, and not that Temporal could not be reached.
func reached(err error) bool {
	var ended *temporal.WorkflowExecutionError
	var gone *serviceerror.NotFound
	return err == nil || errors.As(err, &ended) || errors.As(err, &gone)
}

// newest is the run id of the newest execution of a run: a reset begins another
// under its key. Of a run that Temporal knows no more it is the one last known.
func (c *Claims) newest(ctx context.Context, owner dedup.Owner) (string, error) {
	resp, err := c.Client.DescribeWorkflowExecution(ctx, owner.WorkflowID, "")
	var gone *serviceerror.NotFound
	switch {
	case errors.As(err, &gone):
		return owner.RunID, nil
	case err != nil:
		return "", fmt.Errorf("looking for run %s: %w", owner.WorkflowID, err)
	}
	if info := resp.GetWorkflowExecutionInfo(); info.GetFirstRunId() == owner.RunKey {
		return info.GetExecution().GetRunId(), nil
	}
	return owner.RunID, nil
}

// endOf reads how a closed run ended: from the document that it left, else from
// how its workflow closed.
func (c *Claims) endOf(ctx context.Context, owner dedup.Owner) (*RunEnd, error) {
	runID, err := c.newest(ctx, owner)
	if err != nil {
		return nil, err
	}
	var doc run.Document
	end := &RunEnd{RunID: runID}
	err = c.Client.GetWorkflow(ctx, owner.WorkflowID, runID).Get(ctx, &doc)
	var (
		app        *temporal.ApplicationError
		canceled   *temporal.CanceledError
		timeout    *temporal.TimeoutError
		terminated *temporal.TerminatedError
	)
	switch {
	case err == nil:
		end.Status = run.Succeeded
	case !reached(err):
		return nil, fmt.Errorf("reading how run %s ended: %w", owner.WorkflowID, err)
	case errors.As(err, &app):
		end.Status, end.Cause = run.Failed, &run.Cause{Trigger: run.TriggerInvalid, Message: app.Message()}
		readDetails(app, &doc)
	case errors.As(err, &terminated):
		end.Status, end.Cause = run.Cancelled, &run.Cause{Trigger: run.TriggerUser, Message: "terminated"}
	case errors.As(err, &canceled):
		end.Status, end.Cause = run.Cancelled, &run.Cause{Trigger: run.TriggerUser}
		readDetails(canceled, &doc)
	case errors.As(err, &timeout):
		end.Status, end.Cause = run.TimedOut, &run.Cause{Trigger: run.TriggerPipelineTimeout, Message: "Temporal ended the workflow"}
	default:
		end.Status, end.Cause = run.Failed, &run.Cause{Trigger: run.TriggerInvalid, Message: "nobody knows any more how it ended"}
	}
	if doc.Status.Terminal() {
		end.Status, end.Cause = doc.Status, doc.Cause
		return end, nil
	}
	return end, c.noteCut(ctx, owner.WorkflowID, end)
}

// noteCut notes when a run was ended from outside.
func (c *Claims) noteCut(ctx context.Context, id string, end *RunEnd) error {
	resp, err := c.Client.DescribeWorkflowExecution(ctx, id, end.RunID)
	var gone *serviceerror.NotFound
	switch {
	case errors.As(err, &gone):
		return nil
	case err != nil:
		return fmt.Errorf("looking when run %s was ended: %w", id, err)
	}
	if closed := resp.GetWorkflowExecutionInfo().GetCloseTime(); closed != nil {
		at := closed.AsTime()
		end.Cut = &at
	}
	return nil
}

// readDetails reads the document that an error carries; one that carries none
// leaves doc as it is.
func readDetails(err interface {
	HasDetails() bool
	Details(d ...any) error
}, doc *run.Document,
) {
	var left run.Document
	if err.HasDetails() && err.Details(&left) == nil {
		*doc = left
	}
}

// firstEvent is the start of a workflow as its history tells it.
func (c *Claims) firstEvent(ctx context.Context, id, runID string) (*historypb.WorkflowExecutionStartedEventAttributes, error) {
	events := c.Client.GetWorkflowHistory(ctx, id, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	if !events.HasNext() {
		return nil, fmt.Errorf("reading the start of run %s: no history", id)
	}
	event, err := events.Next()
	if err != nil {
		return nil, fmt.Errorf("reading the start of run %s: %w", id, err)
	}
	return event.GetWorkflowExecutionStartedEventAttributes(), nil
}
