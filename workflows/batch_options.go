package workflows

import (
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/batch"
	"belay.run/internal/run"
)

// chunkWithin is a backstop: what runs longer begins anew, without what is done.
const chunkWithin = 24 * time.Hour

// partOptions are for the child workflow of a part, the place of which counts
// from 1. A batch that is terminated asks its parts to cancel.
func partOptions(in *batch.Input, p *batch.PartInput, place int) workflow.ChildWorkflowOptions {
	first, last := p.Chunk(0), p.Chunk(p.Chunks-1)
	return workflow.ChildWorkflowOptions{
		WorkflowID:            fmt.Sprintf("%s/part/%d", p.Batch.ID, place),
		WorkflowTaskTimeout:   TaskTimeout(0),
		WaitForCancellation:   true,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:         fmt.Sprintf("tasks %d–%d of %d", first.First+1, last.First+last.Tasks, in.Total),
		Priority:              run.Priority(in.Tenant, 0),
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(AttrTenant).ValueSet(in.Tenant),
			temporal.NewSearchAttributeKeyKeyword(AttrProject).ValueSet(in.Project),
		),
	}
}

// chunkOptions are for running a chunk, for as long as it takes: what was done
// is recorded, and not done again.
func chunkOptions(c *batch.Chunk) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		ActivityID:          fmt.Sprintf("chunk-%d", c.Index),
		TaskQueue:           run.QueueBatch,
		StartToCloseTimeout: chunkWithin,
		HeartbeatTimeout:    activities.ChunkHeartbeat,
		WaitForCancellation: true,
		Summary:             c.String(),
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: 200 * time.Millisecond, MaximumInterval: 5 * time.Second},
	}
}

// settleChunksOptions are for making the account of chunks from the records.
func settleChunksOptions() workflow.ActivityOptions {
	o := controlOptions()
	o.StartToCloseTimeout = 10 * time.Minute
	o.ScheduleToCloseTimeout = 10 * time.Minute
	o.HeartbeatTimeout = claimHeartbeat
	o.Summary = "makes the account of what has no other"
	return o
}
