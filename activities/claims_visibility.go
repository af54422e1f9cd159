package activities

import (
	"context"
	"fmt"
	"strings"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"belay.run/internal/dedup"
	"belay.run/internal/run"
)

// maxListed bounds the runs with one key that are looked at.
const maxListed = 1000

// keyQuery finds the runs of a pipeline with a key.
func keyQuery(in *Claiming) string {
	return "WorkflowType = 'Pipeline' AND BelayDedupKey = " + quote(run.ShortKey(in.Key.Name)) +
		" AND BelayTenant = " + quote(in.Key.Tenant) + " AND BelayProject = " + quote(in.Key.Project) +
		" AND BelayPipeline = " + quote(in.Pipeline)
}

// list asks Temporal's visibility.
func (c *Claims) list(ctx context.Context, query string) ([]*workflowpb.WorkflowExecutionInfo, error) {
	resp, err := c.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: c.Namespace, Query: query, PageSize: maxListed,
	})
	if err != nil {
		return nil, fmt.Errorf("asking Temporal for runs: %w", err)
	}
	return resp.GetExecutions(), nil
}

func ownerOf(info *workflowpb.WorkflowExecutionInfo) dedup.Owner {
	return dedup.Owner{
		RunKey:     info.GetFirstRunId(),
		WorkflowID: info.GetExecution().GetWorkflowId(), RunID: info.GetExecution().GetRunId(),
	}
}

// quote makes a literal of Temporal's query language.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
