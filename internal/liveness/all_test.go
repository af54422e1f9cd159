package liveness_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.run/internal/liveness"
)

// registry is a server that lists open executions, one a page.
type registry struct {
	workflowservice.WorkflowServiceClient

	open      []chain
	away      bool
	described int
}

// chain is an open execution, and the first of those that it goes on from.
type chain struct {
	runID, first string
	began        time.Time
}

// ListWorkflowExecutions lists them.
func (r *registry) ListWorkflowExecutions(_ context.Context, in *workflowservice.ListWorkflowExecutionsRequest, _ ...grpc.CallOption) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	resp := &workflowservice.ListWorkflowExecutionsResponse{}
	i := len(in.GetNextPageToken())
	if !strings.Contains(in.GetQuery(), "'Pipeline', 'Batch'") || i == len(r.open) {
		return resp, nil
	}
	resp.Executions = []*workflowpb.WorkflowExecutionInfo{{Execution: &commonpb.WorkflowExecution{WorkflowId: "w", RunId: r.open[i].runID}}}
	resp.NextPageToken = []byte(strings.Repeat("x", i+1))
	return resp, nil
}

// DescribeWorkflowExecution knows them by their run ids.
func (r *registry) DescribeWorkflowExecution(_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	r.described++
	for _, c := range r.open {
		if c.runID == in.GetExecution().GetRunId() && c.first != "" {
			return &workflowservice.DescribeWorkflowExecutionResponse{
				WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{FirstRunId: c.first, StartTime: timestamppb.New(c.began.Add(time.Hour))},
				WorkflowExtendedInfo:  &workflowpb.WorkflowExecutionExtendedInfo{OriginalStartTime: timestamppb.New(c.began)},
			}, nil
		}
	}
	if r.away {
		return nil, errors.New("away")
	}
	return nil, serviceerror.NewNotFound("closed and gone")
}

func TestCensus(t *testing.T) {
	t.Parallel()
	at := func(hour int) time.Time { return time.Date(2026, 1, 31, hour, 0, 0, 0, time.UTC) }
	r := &registry{}
	census := liveness.NewCensus(liveness.New(connection{service: r}, "default"))

	all, err := census.Open(t.Context())
	require.NoError(t, err)
	require.Equal(t, &liveness.All{Runs: map[string]bool{}}, all)

	r.open = []chain{{"r1", "r1", at(5)}, {"reset", "r2", at(3)}, {runID: "closed meanwhile"}}
	all, err = census.Open(t.Context())
	require.NoError(t, err)
	require.Equal(t, &liveness.All{Runs: map[string]bool{"r1": true, "r2": true}, Oldest: at(3)}, all)

	before := r.described
	r.open = append(r.open[:2], chain{"r3", "r3", at(4)})
	all, err = census.Open(t.Context())
	require.NoError(t, err)
	require.Len(t, all.Runs, 3)
	require.Equal(t, before+1, r.described, "what is known is not asked for again")

	r.open, r.away = []chain{{runID: "unknown"}}, true
	_, err = census.Open(t.Context())
	require.ErrorContains(t, err, "away")
}
