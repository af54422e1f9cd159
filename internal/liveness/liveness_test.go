package liveness_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.run/internal/dedup"
	"belay.run/internal/liveness"
	"belay.run/internal/run"
)

// temporal knows some executions, the newest last.
type temporal struct {
	workflowservice.WorkflowServiceClient

	executions []execution
	away       error
	// behind is how many lists do not know of anything yet.
	behind atomic.Int32
}

type execution struct {
	id, runID, first string
	status           enumspb.WorkflowExecutionStatus
}

var closedAt = time.Date(2026, 1, 31, 15, 0, 0, 0, time.UTC)

// connection is the part of the client that is asked.
type connection struct {
	client.Client

	service workflowservice.WorkflowServiceClient
}

// WorkflowService is the frontend.
func (c connection) WorkflowService() workflowservice.WorkflowServiceClient { return c.service }

func asker(s *temporal) *liveness.Asker {
	return liveness.New(connection{service: s}, "default")
}

// DescribeWorkflowExecution finds the newest that is meant.
func (s *temporal) DescribeWorkflowExecution(_ context.Context, r *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if s.away != nil {
		return nil, s.away
	}
	for _, e := range slices.Backward(s.executions) {
		if e.id == r.GetExecution().GetWorkflowId() && (r.GetExecution().GetRunId() == "" || r.GetExecution().GetRunId() == e.runID) {
			return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
				Execution: &commonpb.WorkflowExecution{WorkflowId: e.id, RunId: e.runID}, FirstRunId: e.first,
				Status: e.status, CloseTime: timestamppb.New(closedAt),
			}}, nil
		}
	}
	return nil, serviceerror.NewNotFound("no such workflow")
}

// ListWorkflowExecutions knows the one query that is asked.
func (s *temporal) ListWorkflowExecutions(_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest, _ ...grpc.CallOption) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	prefix, ok := strings.CutPrefix(r.GetQuery(), "ExecutionStatus = 'Running' AND WorkflowType = 'Stage' AND WorkflowId STARTS_WITH '")
	if !ok {
		return nil, serviceerror.NewInvalidArgument(r.GetQuery())
	}
	prefix = strings.ReplaceAll(strings.TrimSuffix(prefix, "'"), `\'`, `'`)
	resp := &workflowservice.ListWorkflowExecutionsResponse{}
	if s.behind.Add(-1) >= 0 {
		return resp, nil
	}
	for _, e := range s.executions {
		if e.status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING && strings.HasPrefix(e.id, prefix) {
			resp.Executions = append(resp.Executions, &workflowpb.WorkflowExecutionInfo{})
		}
	}
	return resp, nil
}

const (
	opened     = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	completed  = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	failed     = enumspb.WORKFLOW_EXECUTION_STATUS_FAILED
	canceled   = enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED
	terminated = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	timedOut   = enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT
)

func TestAsk(t *testing.T) {
	t.Parallel()
	const id = "acme/web/deploy/k/it's"
	owner := dedup.Owner{RunKey: "r1", RunID: "r1", WorkflowID: id}
	alive := liveness.Answer{Alive: true}
	dead := func(s run.Status) liveness.Answer { return liveness.Answer{Status: s, EndedAt: closedAt} }
	for _, tc := range []struct {
		name       string
		executions []execution
		want       liveness.Answer
		state      dedup.State
	}{
		{"Open", []execution{{id, "r1", "r1", opened}}, alive, ""},
		{"Completed", []execution{{id, "r1", "r1", completed}}, dead(run.Succeeded), dedup.Completed},
		{"Failed", []execution{{id, "r1", "r1", failed}}, dead(run.Failed), dedup.Failed},
		{"TimedOut", []execution{{id, "r1", "r1", timedOut}}, dead(run.TimedOut), dedup.Failed},
		{"Canceled", []execution{{id, "r1", "r1", canceled}}, dead(run.Cancelled), dedup.Canceled},
		{"Terminated", []execution{{id, "r1", "r1", terminated}}, dead(run.Cancelled), dedup.Canceled},
		{"NobodyKnows", nil, liveness.Answer{}, dedup.Failed},
		{"ItsHistoryIsGone", []execution{{id, "r9", "r9", opened}}, liveness.Answer{}, dedup.Failed},
		{"AnotherRunUnderTheIDIsOpen", []execution{{id, "r1", "r1", failed}, {id, "r2", "r2", opened}}, dead(run.Failed), dedup.Failed},
		{"ResetAndOpenAgain", []execution{{id, "r1", "r1", terminated}, {id, "r2", "r1", opened}}, alive, ""},
		{"ResetAndEnded", []execution{{id, "r1", "r1", terminated}, {id, "r2", "r1", completed}}, dead(run.Succeeded), dedup.Completed},
		{"AStageOfItIsOpen", []execution{{id, "r1", "r1", terminated}, {id + "/r1/build", "s", "s", opened}}, alive, ""},
		{"AStageOfItIsClosed", []execution{{id, "r1", "r1", terminated}, {id + "/r1/build", "s", "s", completed}}, dead(run.Cancelled), dedup.Canceled},
		{"AStageOfAnotherIsOpen", []execution{
			{id, "r1", "r1", terminated}, {id, "r2", "r2", failed}, {id + "/r2/build", "s", "s", opened}, {id + "/r10/build", "s", "s", opened},
		}, dead(run.Cancelled), dedup.Canceled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := asker(&temporal{executions: tc.executions}).Ask(t.Context(), owner)
			require.Equal(t, tc.want, got)
			if !got.Alive {
				require.Equal(t, tc.state, got.State())
			}
		})
	}
}

func TestOutOfReachIsAlive(t *testing.T) {
	t.Parallel()
	away := errors.New("persistence is away")
	got := asker(&temporal{away: away}).Ask(t.Context(), dedup.Owner{WorkflowID: "x", RunKey: "r"})
	require.True(t, got.Alive)
	require.True(t, got.Unsure)
	require.ErrorIs(t, got.Err, away)
}

func TestAStageThatIsNotKnownYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := &temporal{executions: []execution{{"x", "r1", "r1", terminated}, {"x/r1/build", "s", "s", opened}}}
	s.behind.Store(1)
	require.True(t, asker(s).Ask(t.Context(), dedup.Owner{WorkflowID: "x", RunKey: "r1", RunID: "r1"}).Alive)
}
