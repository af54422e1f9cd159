package frontend

import (
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Payloads encodes values as Temporal carries them. What cannot be encoded is
// missing, which whoever decodes it finds.
func Payloads(values ...any) *commonpb.Payloads {
	p, err := converter.GetDefaultDataConverter().ToPayloads(values...)
	if err != nil {
		return nil
	}
	return p
}

func failure(err error) *failurepb.Failure {
	return temporal.GetDefaultFailureConverter().ErrorToFailure(err)
}

// closing is the last event of a history.
func closing(t enumspb.EventType) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{EventId: 99, EventTime: timestamppb.New(time.Now()), EventType: t}
}

// Complete closes w with a result.
func (s *Server) Complete(w *Workflow, result any) {
	e := closing(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED)
	e.Attributes = &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
		WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{Result: Payloads(result)},
	}
	s.End(w, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, e)
}

// Fail closes w with an error.
func (s *Server) Fail(w *Workflow, err error) {
	e := closing(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED)
	e.Attributes = &historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes{
		WorkflowExecutionFailedEventAttributes: &historypb.WorkflowExecutionFailedEventAttributes{Failure: failure(err)},
	}
	s.End(w, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, e)
}

// Cancel closes w as cancelled, with details.
func (s *Server) Cancel(w *Workflow, details ...any) {
	e := closing(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED)
	e.Attributes = &historypb.HistoryEvent_WorkflowExecutionCanceledEventAttributes{
		WorkflowExecutionCanceledEventAttributes: &historypb.WorkflowExecutionCanceledEventAttributes{Details: Payloads(details...)},
	}
	s.End(w, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, e)
}

// Terminate closes w as somebody with a reason.
func (s *Server) Terminate(w *Workflow, identity, reason string) {
	e := closing(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED)
	e.Attributes = &historypb.HistoryEvent_WorkflowExecutionTerminatedEventAttributes{
		WorkflowExecutionTerminatedEventAttributes: &historypb.WorkflowExecutionTerminatedEventAttributes{Identity: identity, Reason: reason},
	}
	s.End(w, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED, e)
}

// TimeOut closes w because its execution timeout is over.
func (s *Server) TimeOut(w *Workflow) {
	e := closing(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT)
	e.Attributes = &historypb.HistoryEvent_WorkflowExecutionTimedOutEventAttributes{
		WorkflowExecutionTimedOutEventAttributes: &historypb.WorkflowExecutionTimedOutEventAttributes{},
	}
	s.End(w, enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT, e)
}

// ChildEvents are those of a parent that started a child, numbered from id.
func ChildEvents(id int64, child *Workflow) []*historypb.HistoryEvent {
	return []*historypb.HistoryEvent{
		{
			EventId: id, EventTime: timestamppb.New(child.Started), EventType: enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
			Attributes: &historypb.HistoryEvent_StartChildWorkflowExecutionInitiatedEventAttributes{
				StartChildWorkflowExecutionInitiatedEventAttributes: &historypb.StartChildWorkflowExecutionInitiatedEventAttributes{
					WorkflowId: child.ID, WorkflowType: &commonpb.WorkflowType{Name: child.Type}, Input: Payloads(child.Input),
				},
			},
		},
		{
			EventId: id + 1, EventTime: timestamppb.New(child.Started), EventType: enumspb.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED,
			Attributes: &historypb.HistoryEvent_ChildWorkflowExecutionStartedEventAttributes{
				ChildWorkflowExecutionStartedEventAttributes: &historypb.ChildWorkflowExecutionStartedEventAttributes{
					InitiatedEventId: id, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: child.ID, RunId: child.RunID},
				},
			},
		},
	}
}
