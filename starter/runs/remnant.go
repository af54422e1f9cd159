package runs

import (
	"context"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/workflows"
)

// remnant describes a stage whose workflow was closed by others, so that it left no
// document, by its history. No worker is needed for it.
func (c *Client) remnant(ctx context.Context, ref Ref, end ending) (*run.Stage, error) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	h := remnant{doc: &run.Stage{Status: end.status, Cause: end.cause}, steps: map[string]int{}, of: map[int64]string{}, binds: map[int64]bool{}}
	events := c.temporal.GetWorkflowHistory(ctx, ref.ID, ref.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for n := 0; events.HasNext() && n < maxEvents; n++ {
		event, err := events.Next()
		if err == nil {
			err = h.take(event)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the history of %s: %w", ref.ID, err)
		}
	}
	workflows.CutSteps(h.doc, end.cause)
	return h.doc, nil
}

// remnant gathers the document of a stage from events.
type remnant struct {
	doc   *run.Stage
	steps map[string]int // the place of each in doc.Steps, by name
	// of are the activities of steps, and binds those that look for a host, by the
	// event that scheduled each.
	of    map[int64]string
	binds map[int64]bool
}

func (h *remnant) take(e *historypb.HistoryEvent) error {
	at := e.GetEventTime().AsTime()
	h.doc.EndedAt = &at
	switch e.GetEventType() { //nolint:exhaustive // the others say nothing of steps
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
		var in workflows.StageInput
		if err := decode(e.GetWorkflowExecutionStartedEventAttributes().GetInput(), &in); err != nil {
			return err
		}
		h.doc.StartedAt, h.doc.Node, h.doc.Steps = &at, run.StageNode(in.Stage.Name, in.Leg), workflows.StepsOf(&in)
		for i := range h.doc.Steps {
			h.steps[h.doc.Steps[i].Name] = i
		}
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
		attrs := e.GetActivityTaskScheduledEventAttributes()
		if attrs.GetActivityType().GetName() == stageWork()["host"] {
			h.binds[e.GetEventId()] = true
		} else if i, ok := h.steps[attrs.GetActivityId()]; ok {
			step := &h.doc.Steps[i]
			h.of[e.GetEventId()] = step.Name
			step.Status, step.Cause, step.EndedAt = run.Running, nil, nil
			if step.StartedAt == nil {
				step.StartedAt = &at
			}
		}
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
		return h.completed(e)
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
		attrs := e.GetActivityTaskFailedEventAttributes()
		h.ended(e, attrs.GetScheduledEventId(), nil, temporal.GetDefaultFailureConverter().FailureToError(attrs.GetFailure()))
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
		attrs := e.GetActivityTaskTimedOutEventAttributes()
		if attrs.GetFailure().GetTimeoutFailureInfo().GetTimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START {
			return nil // the stage looks whether its host lives, and asks it again
		}
		h.ended(e, attrs.GetScheduledEventId(), nil, temporal.GetDefaultFailureConverter().FailureToError(attrs.GetFailure()))
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
		attrs := e.GetActivityTaskCanceledEventAttributes()
		var res activities.StepResult
		if err := decode(attrs.GetDetails(), &res); err != nil {
			return err
		}
		h.ended(e, attrs.GetScheduledEventId(), nil, temporal.NewCanceledError(res))
	}
	return nil
}

// completed takes the result of an activity.
func (h *remnant) completed(e *historypb.HistoryEvent) error {
	attrs := e.GetActivityTaskCompletedEventAttributes()
	id := attrs.GetScheduledEventId()
	if h.binds[id] {
		var bound activities.Binding
		err := decode(attrs.GetResult(), &bound)
		h.doc.Host = bound.Host
		return err
	}
	if _, ok := h.of[id]; !ok {
		return nil
	}
	var res activities.StepResult
	if err := decode(attrs.GetResult(), &res); err != nil {
		return err
	}
	h.ended(e, id, &res, nil)
	return nil
}

// ended settles the step that an activity ran.
func (h *remnant) ended(e *historypb.HistoryEvent, scheduled int64, res *activities.StepResult, err error) {
	i, ok := h.steps[h.of[scheduled]]
	if !ok {
		return
	}
	at := e.GetEventTime().AsTime()
	h.doc.Steps[i].EndedAt = &at
	workflows.RecordStep(&h.doc.Steps[i], res, err)
}
