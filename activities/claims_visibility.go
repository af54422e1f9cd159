package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/serviceerror"
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

// list asks Temporal's visibility for runs with their run keys, which it does not
// keep: each run is asked for its own.
func (c *Claims) list(ctx context.Context, query string) ([]*workflowpb.WorkflowExecutionInfo, error) {
	found, err := c.listed(ctx, query)
	if err != nil {
		return nil, err
	}
	known := found[:0]
	for _, info := range found {
		if info.GetFirstRunId() == "" {
			resp, err := c.Client.DescribeWorkflowExecution(ctx, info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId())
			if _, deleted := errors.AsType[*serviceerror.NotFound](err); deleted {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("asking run %s for its key: %w", info.GetExecution().GetWorkflowId(), err)
			}
			info.FirstRunId = resp.GetWorkflowExecutionInfo().GetFirstRunId()
		}
		known = append(known, info)
	}
	return known, nil
}

// listed asks Temporal's visibility.
func (c *Claims) listed(ctx context.Context, query string) ([]*workflowpb.WorkflowExecutionInfo, error) {
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
