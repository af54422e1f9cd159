package frontend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	querypb "go.temporal.io/api/query/v1"
	"go.temporal.io/api/serviceerror"
	updatepb "go.temporal.io/api/update/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fail is how the real server says an error to clients.
func fail(err error) error { return serviceerror.ToStatus(err).Err() }

func notFound(id string) error {
	return fail(serviceerror.NewNotFound("workflow not found for ID: " + id))
}

// GetSystemInfo is asked by every client first.
func (s *Server) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{}}, nil
}

// DescribeNamespace knows one.
func (s *Server) DescribeNamespace(_ context.Context, r *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	if r.GetNamespace() != Namespace {
		return nil, fail(serviceerror.NewNamespaceNotFound(r.GetNamespace()))
	}
	return &workflowservice.DescribeNamespaceResponse{NamespaceInfo: &namespacepb.NamespaceInfo{Name: Namespace}}, nil
}

// StartWorkflowExecution starts one where the policies allow it.
func (s *Server) StartWorkflowExecution(_ context.Context, r *workflowservice.StartWorkflowExecutionRequest) (*workflowservice.StartWorkflowExecutionResponse, error) {
	s.mu.Lock()
	s.asked.Starts = append(s.asked.Starts, r)
	if old := s.find(r.GetWorkflowId(), ""); old != nil && refuses(old, r.GetWorkflowIdReusePolicy()) {
		s.mu.Unlock()
		return nil, fail(serviceerror.NewWorkflowExecutionAlreadyStarted("already started", r.GetRequestId(), old.RunID))
	}
	w := &Workflow{
		ID: r.GetWorkflowId(), RunID: uuid.NewString(), Type: r.GetWorkflowType().GetName(),
		Input: r.GetInput(), Attributes: map[string]string{},
	}
	s.add(w)
	onStart := s.onStart
	s.mu.Unlock()
	if onStart != nil {
		onStart(w)
	}
	return &workflowservice.StartWorkflowExecutionResponse{RunId: w.RunID, Started: true}, nil
}

func refuses(old *Workflow, policy enumspb.WorkflowIdReusePolicy) bool {
	if old.closeEvent == nil || policy == enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE {
		return true
	}
	return policy == enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY &&
		old.closedAs == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
}

// QueryWorkflow has the workflow's Status answer.
func (s *Server) QueryWorkflow(ctx context.Context, r *workflowservice.QueryWorkflowRequest) (*workflowservice.QueryWorkflowResponse, error) {
	s.mu.Lock()
	s.asked.Queries++
	w := s.find(r.GetExecution().GetWorkflowId(), r.GetExecution().GetRunId())
	s.mu.Unlock()
	if w == nil {
		return nil, notFound(r.GetExecution().GetWorkflowId())
	}
	s.mu.Lock()
	closed, closedAs, status := w.closeEvent != nil, w.closedAs, w.Status
	s.mu.Unlock()
	if closed && r.GetQueryRejectCondition() == enumspb.QUERY_REJECT_CONDITION_NOT_OPEN {
		return &workflowservice.QueryWorkflowResponse{QueryRejected: &querypb.QueryRejected{Status: closedAs}}, nil
	}
	if status == nil {
		<-ctx.Done()
		return nil, fail(serviceerror.NewDeadlineExceeded("query timed out before a worker could process it"))
	}
	doc, err := status()
	if err != nil {
		return nil, fail(err)
	}
	return &workflowservice.QueryWorkflowResponse{QueryResult: Payloads(doc)}, nil
}

// DescribeWorkflowExecution tells what the server itself knows.
func (s *Server) DescribeWorkflowExecution(_ context.Context, r *workflowservice.DescribeWorkflowExecutionRequest) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.find(r.GetExecution().GetWorkflowId(), r.GetExecution().GetRunId())
	if w == nil {
		return nil, notFound(r.GetExecution().GetWorkflowId())
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: w.info(), PendingActivities: w.Pending}, nil
}

func (w *Workflow) info() *workflowpb.WorkflowExecutionInfo {
	info := &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: w.ID, RunId: w.RunID},
		Type:      &commonpb.WorkflowType{Name: w.Type}, FirstRunId: w.FirstRunID,
		StartTime: timestamppb.New(w.Started), Status: enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
		SearchAttributes: &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{}},
	}
	if w.ParentID != "" {
		info.ParentExecution = &commonpb.WorkflowExecution{WorkflowId: w.ParentID}
	}
	for k, v := range w.Attributes {
		info.SearchAttributes.IndexedFields[k] = Payloads(v).GetPayloads()[0]
	}
	if w.closeEvent != nil {
		info.Status, info.CloseTime = w.closedAs, w.closeEvent.GetEventTime()
	}
	return info
}

// ListWorkflowExecutions filters by what the command line asks for: equalities
// and a start time.
func (s *Server) ListWorkflowExecutions(_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &workflowservice.ListWorkflowExecutionsResponse{}
	for _, v := range slices.Backward(s.workflows) {
		if w := v; w.matches(r.GetQuery()) {
			resp.Executions = append(resp.Executions, w.info())
		}
	}
	return resp, nil
}

func (w *Workflow) matches(query string) bool {
	for part := range strings.SplitSeq(query, " AND ") {
		name, rest, _ := strings.Cut(part, " ")
		var ok bool
		switch value := w.info(); name {
		case "WorkflowType":
			ok = rest == "= '"+w.Type+"'"
		case "StartTime":
			ok = strings.TrimSuffix(strings.TrimPrefix(rest, ">= '"), "'") <= w.Started.UTC().Format("2006-01-02T15:04:05.999999999Z")
		case "ExecutionStatus":
			ok = strings.Contains(rest, "'"+value.GetStatus().String()+"'")
		default:
			ok = rest == "= '"+w.Attributes[name]+"'"
		}
		if !ok {
			return false
		}
	}
	return true
}

// GetWorkflowExecutionHistory gives all events, or waits for the last.
func (s *Server) GetWorkflowExecutionHistory(ctx context.Context, r *workflowservice.GetWorkflowExecutionHistoryRequest) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	s.mu.Lock()
	w := s.find(r.GetExecution().GetWorkflowId(), r.GetExecution().GetRunId())
	s.mu.Unlock()
	if w == nil {
		return nil, notFound(r.GetExecution().GetWorkflowId())
	}
	if r.GetWaitNewEvent() && !s.await(ctx, w) {
		return nil, fail(serviceerror.NewDeadlineExceeded("no new event"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []*historypb.HistoryEvent
	if r.GetHistoryEventFilterType() == enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT {
		events = append([]*historypb.HistoryEvent{w.started()}, w.Events...)
	}
	if w.closeEvent != nil {
		events = append(events, w.closeEvent)
	}
	return &workflowservice.GetWorkflowExecutionHistoryResponse{History: &historypb.History{Events: events}}, nil
}

// RequestCancelWorkflowExecution hands the request to the workflow.
func (s *Server) RequestCancelWorkflowExecution(_ context.Context, r *workflowservice.RequestCancelWorkflowExecutionRequest) (*workflowservice.RequestCancelWorkflowExecutionResponse, error) {
	s.mu.Lock()
	s.asked.Cancels = append(s.asked.Cancels, r)
	w := s.find(r.GetWorkflowExecution().GetWorkflowId(), r.GetWorkflowExecution().GetRunId())
	s.mu.Unlock()
	if w == nil {
		return nil, notFound(r.GetWorkflowExecution().GetWorkflowId())
	}
	if w.Cancelled != nil {
		w.Cancelled(r)
	}
	return &workflowservice.RequestCancelWorkflowExecutionResponse{}, nil
}

// SignalWorkflowExecution records the signal.
func (s *Server) SignalWorkflowExecution(_ context.Context, r *workflowservice.SignalWorkflowExecutionRequest) (*workflowservice.SignalWorkflowExecutionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked.Signals = append(s.asked.Signals, r)
	return &workflowservice.SignalWorkflowExecutionResponse{}, nil
}

// UpdateWorkflowExecution has the workflow's Update answer.
func (s *Server) UpdateWorkflowExecution(_ context.Context, r *workflowservice.UpdateWorkflowExecutionRequest) (*workflowservice.UpdateWorkflowExecutionResponse, error) {
	s.mu.Lock()
	s.asked.Updates = append(s.asked.Updates, r)
	w := s.find(r.GetWorkflowExecution().GetWorkflowId(), r.GetWorkflowExecution().GetRunId())
	s.mu.Unlock()
	if w == nil {
		return nil, notFound(r.GetWorkflowExecution().GetWorkflowId())
	}
	outcome := &updatepb.Outcome{Value: &updatepb.Outcome_Success{}}
	if w.Update != nil {
		if err := w.Update(r.GetRequest().GetInput().GetArgs().GetPayloads()[0].GetData()); err != nil {
			outcome = &updatepb.Outcome{Value: &updatepb.Outcome_Failure{
				Failure: failure(temporal.NewApplicationError(err.Error(), "refused")),
			}}
		}
	}
	return &workflowservice.UpdateWorkflowExecutionResponse{
		Stage: enumspb.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED, Outcome: outcome,
		UpdateRef: &updatepb.UpdateRef{
			WorkflowExecution: r.GetWorkflowExecution(), UpdateId: r.GetRequest().GetMeta().GetUpdateId(),
		},
	}, nil
}

func (w *Workflow) started() *historypb.HistoryEvent {
	input, ok := w.Input.(*commonpb.Payloads)
	if !ok {
		input = Payloads(w.Input)
	}
	return &historypb.HistoryEvent{
		EventId: 1, EventTime: timestamppb.New(w.Started), EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
		Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
				WorkflowType: &commonpb.WorkflowType{Name: w.Type}, Input: input,
			},
		},
	}
}

// String names the execution in failures of tests.
func (w *Workflow) String() string { return fmt.Sprintf("%s %s@%s", w.Type, w.ID, w.RunID) }
