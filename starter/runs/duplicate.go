package runs

import (
	"context"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"belay.run/internal/run"
	"belay.run/workflows"
)

// OriginalOf is the run that stands for a duplicate; ok is false where the
// document is none, or does not say.
func OriginalOf(d *run.Document) (ref Ref, ok bool) {
	if d == nil || d.Status != run.Duplicate || d.DuplicateOf == "" {
		return Ref{}, false
	}
	return Ref{ID: d.DuplicateOf, RunID: d.DuplicateRunID}, true
}

// original is the run that stands for a closed duplicate; the duplicate itself
// where that run is not there any more.
func (c *Client) original(ctx context.Context, ref Ref) (Ref, error) {
	var d run.Document
	if _, err := c.result(ctx, ref, &d); err != nil {
		return Ref{}, err
	}
	of, ok := OriginalOf(&d)
	if !ok || of == ref {
		return ref, nil
	}
	_, err := c.describe(ctx, of)
	if isNotFound(err) {
		return ref, nil
	}
	return of, err
}

// Completion is when the run completed that an execution stands for: itself, or
// the original of a duplicate. It is zero where that has not completed.
func (c *Client) Completion(ctx context.Context, ref Ref) (time.Time, error) {
	info, err := c.describe(ctx, ref)
	if err != nil {
		return time.Time{}, err
	}
	if published(info) == run.Duplicate {
		of, err := c.original(ctx, ref)
		if err != nil {
			return time.Time{}, err
		}
		if of != ref {
			if info, err = c.describe(ctx, of); err != nil {
				return time.Time{}, err
			}
		}
	}
	if info.GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
		return time.Time{}, nil
	}
	return info.GetCloseTime().AsTime(), nil
}

// Input is what a run was started with.
func (c *Client) Input(ctx context.Context, ref Ref) (*workflows.PipelineInput, error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	resp, err := c.temporal.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: c.namespace, MaximumPageSize: 1, HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT,
		Execution: &commonpb.WorkflowExecution{WorkflowId: ref.ID, RunId: ref.RunID},
	})
	if err != nil {
		return nil, fmt.Errorf("reading the input of %s: %w", ref.ID, err)
	}
	var in workflows.PipelineInput
	for _, e := range resp.GetHistory().GetEvents() {
		if attrs := e.GetWorkflowExecutionStartedEventAttributes(); attrs != nil {
			if err := decode(attrs.GetInput(), &in); err != nil {
				return nil, err
			}
		}
	}
	return &in, nil
}
