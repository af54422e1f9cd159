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
	"belay.run/internal/spec"
	"belay.run/workflows"
)

// maxEvents bounds how much of a history is read: a pipeline of 500 stages has
// far fewer, and past 51,200 Temporal itself ends a workflow.
const maxEvents = 60_000

// Plan is the plan of a run, made again of what it was started with. A worker of
// another version may have read the file differently: it is for display only.
func (c *Client) Plan(ctx context.Context, ref Ref) (*spec.Plan, error) {
	in, err := c.Input(ctx, ref)
	if err != nil {
		return nil, err
	}
	return planOf(in)
}

func planOf(in *workflows.PipelineInput) (*spec.Plan, error) {
	file, report := spec.Parse(in.Path, []byte(in.File))
	if err := report.Err(); err != nil {
		return nil, fmt.Errorf("reading the pipeline file of the run: %w", err)
	}
	return file.Plan(in.Inputs)
}

// fromHistory describes a run by its history, without any worker: for one that
// was terminated, and while no worker answers. How the stages are that were
// started, each one's own workflow tells.
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
	h.addUnstarted()
	return d, nil
}

// history gathers a document from events.
type history struct {
	doc    *run.Document
	plan   *spec.Plan
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
		if plan, err := planOf(&in); err == nil { // else there is only less to show
			h.plan, h.doc.Pipeline, h.doc.Inputs = plan, plan.Name, plan.Inputs
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

// addUnstarted puts the stages of the plan that were never started among the
// others, in the order of the file.
func (h *history) addUnstarted() {
	if h.plan == nil {
		return
	}
	status := run.Pending
	if h.doc.Status.Terminal() {
		status = run.Skipped
	}
	started := map[string]run.Stage{}
	for _, s := range h.doc.Stages {
		started[s.Node] = s
	}
	var stages []run.Stage
	for i := range h.plan.Stages {
		legs := []run.Leg{nil}
		if m := h.plan.Stages[i].Matrix; m != nil {
			legs = m.Legs
		}
		for _, leg := range legs {
			node := run.StageNode(h.plan.Stages[i].Name, leg)
			s, ok := started[node]
			if !ok {
				s = run.Stage{Name: h.plan.Stages[i].Name, Leg: leg, Node: node, Status: status}
			}
			delete(started, node)
			stages = append(stages, s)
		}
	}
	for _, s := range h.doc.Stages {
		if _, left := started[s.Node]; left { // finally, and what another version knows
			stages = append(stages, s)
		}
	}
	h.doc.Stages = stages
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
