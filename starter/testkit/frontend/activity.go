package frontend

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	activitypb "go.temporal.io/api/activity/v1"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Activity is one standalone activity, as a client started it.
type Activity struct {
	ID, RunID string
	// State is what it does now; scheduled until a test says otherwise.
	State enumspb.PendingActivityState

	wait    *durationpb.Duration
	started time.Time
	outcome *activitypb.ActivityExecutionOutcome
}

// Tasks are the activities that were started so far.
func (s *Server) Tasks() []*Activity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tasks)
}

// EndTask closes an activity: with a result, or where err is given as failed.
func (s *Server) EndTask(a *Activity, result any, err error) {
	outcome := &activitypb.ActivityExecutionOutcome{Value: &activitypb.ActivityExecutionOutcome_Result{Result: Payloads(result)}}
	if err != nil {
		outcome.Value = &activitypb.ActivityExecutionOutcome_Failure{Failure: failure(err)}
	}
	s.settle(a, outcome)
}

// TaskTimesOut closes an activity as Temporal does that gives it up.
func (s *Server) TaskTimesOut(a *Activity, kind enumspb.TimeoutType) {
	s.settle(a, &activitypb.ActivityExecutionOutcome{Value: &activitypb.ActivityExecutionOutcome_Failure{Failure: &failurepb.Failure{
		Message:     "activity timeout",
		FailureInfo: &failurepb.Failure_TimeoutFailureInfo{TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{TimeoutType: kind}},
	}}})
}

func (s *Server) settle(a *Activity, outcome *activitypb.ActivityExecutionOutcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.outcome = outcome
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) findTask(id string) *Activity {
	for _, a := range s.tasks {
		if a.ID == id {
			return a
		}
	}
	return nil
}

// StartActivityExecution starts each activity once.
func (s *Server) StartActivityExecution(_ context.Context, r *workflowservice.StartActivityExecutionRequest) (*workflowservice.StartActivityExecutionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked.Tasks = append(s.asked.Tasks, r)
	if there := s.findTask(r.GetActivityId()); there != nil {
		return nil, fail(serviceerror.NewActivityExecutionAlreadyStarted("it was started before", r.GetRequestId(), there.RunID))
	}
	a := &Activity{
		ID: r.GetActivityId(), RunID: uuid.NewString(), State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED,
		wait: r.GetScheduleToStartTimeout(), started: time.Now(),
	}
	s.tasks = append(s.tasks, a)
	return &workflowservice.StartActivityExecutionResponse{RunId: a.RunID, Started: true}, nil
}

// PollActivityExecution waits for the end of an activity.
func (s *Server) PollActivityExecution(ctx context.Context, r *workflowservice.PollActivityExecutionRequest) (*workflowservice.PollActivityExecutionResponse, error) {
	for {
		s.mu.Lock()
		a, changed := s.findTask(r.GetActivityId()), s.changed
		var outcome *activitypb.ActivityExecutionOutcome
		if a != nil {
			outcome = a.outcome
		}
		s.mu.Unlock()
		switch {
		case a == nil:
			return nil, notFound(r.GetActivityId())
		case outcome != nil:
			return &workflowservice.PollActivityExecutionResponse{RunId: a.RunID, Outcome: outcome}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &workflowservice.PollActivityExecutionResponse{RunId: a.RunID}, nil
		}
	}
}

// DescribeActivityExecution tells how an activity stands.
func (s *Server) DescribeActivityExecution(_ context.Context, r *workflowservice.DescribeActivityExecutionRequest) (*workflowservice.DescribeActivityExecutionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.findTask(r.GetActivityId())
	if a == nil {
		return nil, notFound(r.GetActivityId())
	}
	return &workflowservice.DescribeActivityExecutionResponse{RunId: a.RunID, Info: &activitypb.ActivityExecutionInfo{
		ActivityId: a.ID, RunId: a.RunID, Status: enumspb.ACTIVITY_EXECUTION_STATUS_RUNNING, RunState: a.State, Attempt: 1,
		ScheduleTime: timestamppb.New(a.started), ScheduleToStartTimeout: a.wait, SearchAttributes: &commonpb.SearchAttributes{},
	}}, nil
}

// RequestCancelActivityExecution records the request.
func (s *Server) RequestCancelActivityExecution(_ context.Context, r *workflowservice.RequestCancelActivityExecutionRequest) (*workflowservice.RequestCancelActivityExecutionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked.CancelledTasks = append(s.asked.CancelledTasks, r)
	return &workflowservice.RequestCancelActivityExecutionResponse{}, nil
}
