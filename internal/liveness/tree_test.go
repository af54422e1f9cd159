package liveness_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"belay.run/internal/dedup"
	"belay.run/internal/liveness"
	"belay.run/internal/run"
)

// crowded lists its executions one a page.
type crowded struct{ *temporal }

func (s crowded) ListWorkflowExecutions(_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest, _ ...grpc.CallOption) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	resp := &workflowservice.ListWorkflowExecutionsResponse{}
	at := len(r.GetNextPageToken())
	if !strings.Contains(r.GetQuery(), "STARTS_WITH 'id/r1/'") || at >= len(s.executions) {
		return resp, nil
	}
	e := s.executions[at]
	if !strings.HasPrefix(e.id, "id/") {
		return resp, nil
	}
	resp.Executions = []*workflowpb.WorkflowExecutionInfo{{Execution: &commonpb.WorkflowExecution{WorkflowId: e.id}, Status: e.status}}
	resp.NextPageToken = make([]byte, at+1)
	return resp, nil
}

// TestTreeIsWhole: who releases what a run held must hear of each stage that is
// open, however many were cut.
func TestTreeIsWhole(t *testing.T) {
	t.Parallel()
	a := liveness.New(connection{service: crowded{&temporal{executions: []execution{
		{"id/r1/a", "a", "a", terminated}, {"id/r1/b", "b", "b", terminated}, {"id/r1/c", "c", "c", opened}, {"id", "r1", "r1", terminated},
	}}}}, "default")
	tree, err := a.Tree(t.Context(), dedup.Owner{RunKey: "r1", RunID: "r1", WorkflowID: "id"})
	require.NoError(t, err)
	require.False(t, tree.RunOpen())
	require.Equal(t, run.Cancelled, tree.Status())
	require.Len(t, tree.OpenStages(), 1)
	require.Equal(t, "id/r1/c", tree.OpenStages()[0].GetExecution().GetWorkflowId())
	require.Len(t, tree.CutStages(), 2)
}
