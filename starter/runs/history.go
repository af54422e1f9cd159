package runs

import (
	"context"
	"errors"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"belay.run/internal/run"
	"belay.run/workflows"
)

// maxEvents bounds how much of a history is read: a pipeline of 500 stages has
// far fewer, and past 51,200 Temporal itself ends a workflow.
const maxEvents = 60_000

// fromHistory describes a run by its history, without any worker: for one that
// was terminated, and while no worker answers. Its stages are those that were
// started; how they are, each stage's own workflow tells.
func (c *Client) fromHistory(ctx context.Context, ref Ref) (*run.Document, error) {
	info, err := c.describe(ctx, ref)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	d := c.known(info)
	h := history{doc: d, stages: map[int64]int{}}
	events := c.temporal.GetWorkflowHistory(ctx, ref.ID, ref.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for n := 0; events.HasNext() && n < maxEvents; n++ {
		event, err := events.Next()
		if err != nil {
			return nil, fmt.Errorf("reading the history of %s: %w", ref.ID, err)
		}
		if err := h.take(event); err != nil {
			return nil, fmt.Errorf("reading the history of %s: %w", ref.ID, err)
		}
	}
	return d, nil
}

// history gathers a document from events.
type history struct {
	doc    *run.Document
	stages map[int64]int // id of the event that initiated a child to its place in doc.Stages
}

func (h *history) take(e *historypb.HistoryEvent) error {
	at := e.GetEventTime().AsTime()
	switch e.GetEventType() { //nolint:exhaustive // the others say nothing of a run's stages
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
		var in workflows.PipelineInput
		if err := decode(e.GetWorkflowExecutionStartedEventAttributes().GetInput(), &in); err != nil {
			return err
		}
		for k, v := range in.Inputs {
			h.doc.Inputs[k] = v
		}
	case enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
		attrs := e.GetStartChildWorkflowExecutionInitiatedEventAttributes()
		var in workflows.StageInput
		if err := decode(attrs.GetInput(), &in); err != nil {
			return err
		}
		h.stages[e.GetEventId()] = len(h.doc.Stages)
		h.doc.Stages = append(h.doc.Stages, run.Stage{
			Name: in.Stage.Name, Leg: in.Leg, Node: run.StageNode(in.Stage.Name, in.Leg), Finally: in.Finally,
			Status: run.Pending, WorkflowID: attrs.GetWorkflowId(),
			Resources: []run.Resource{}, Steps: []run.Step{},
		})
	case enumspb.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
		attrs := e.GetChildWorkflowExecutionStartedEventAttributes()
		if i, ok := h.stages[attrs.GetInitiatedEventId()]; ok {
			s := &h.doc.Stages[i]
			s.RunID, s.Status, s.StartedAt = attrs.GetWorkflowExecution().GetRunId(), run.Running, &at
		}
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
		attrs := e.GetWorkflowExecutionCancelRequestedEventAttributes()
		if !h.doc.Status.Terminal() {
			h.doc.Status = run.Cancelling
		}
		h.doc.Cause = &run.Cause{Trigger: run.TriggerUser, By: attrs.GetIdentity(), Message: attrs.GetCause()}
	}
	return nil
}

// decode reads the first of a workflow's arguments. A run started from
// elsewhere may have none.
func decode(args *commonpb.Payloads, into any) error {
	payloads := args.GetPayloads()
	if len(payloads) == 0 {
		return nil
	}
	err := converter.GetDefaultDataConverter().FromPayload(payloads[0], into)
	if err != nil && !errors.Is(err, converter.ErrUnableToDecode) {
		return fmt.Errorf("decoding an input: %w", err)
	}
	return nil
}
