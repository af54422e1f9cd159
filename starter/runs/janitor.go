package runs

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"belay.run/activities"
	"belay.run/internal/run"
)

// passWithin bounds a pass that was asked for: where no worker takes it, it does
// not wait for ever.
const passWithin = 10 * time.Minute

// RunJanitor starts one pass of the janitor now and waits for it.
func (c *Client) RunJanitor(ctx context.Context, in activities.JanitorInput) (*activities.JanitorResult, error) {
	started, err := c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       run.JanitorID + "/" + uuid.NewString(),
		TaskQueue:                run.QueueWorkflows,
		WorkflowTaskTimeout:      activities.GroupTaskTimeout,
		WorkflowExecutionTimeout: passWithin, // it holds nothing, and what it has begun goes on
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		StaticSummary:            "releases what closed runs left behind; asked for",
	}, activities.JanitorWorkflow, in)
	if err != nil {
		return nil, fmt.Errorf("starting the janitor: %w", err)
	}
	var res activities.JanitorResult
	if err := started.Get(ctx, &res); err != nil {
		return nil, fmt.Errorf("waiting for the janitor: %w", err)
	}
	return &res, nil
}
