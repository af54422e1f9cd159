package activities

import (
	"context"
	"fmt"
	"time"

	"belay.run/internal/resource"
	"belay.run/internal/run"
)

// relockFor is how long after Redis lost its memory the holders of locks have
// certainly said again that they hold them.
const relockFor = resource.LockLease / 2

// LockRecovery reports whether a lock may be held of which Redis does not know,
// as it lost its memory just now: only a stage that began before that can hold
// one. It is never so where there is no Redis.
func LockRecovery(c *Claims) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		if c.Claims == nil {
			return false, nil
		}
		since, lost, err := c.Claims.Recovering(ctx)
		if err != nil || !lost {
			return false, err
		}
		now, err := c.Claims.Now(ctx)
		if err != nil || now.Sub(since) > relockFor {
			return false, err
		}
		open, err := c.listed(ctx, fmt.Sprintf("WorkflowType = 'Stage' AND ExecutionStatus = 'Running' AND StartTime < '%s'",
			since.UTC().Format(time.RFC3339Nano)))
		return len(open) > 0, err
	}
}

// stageOfRun tells the node of the stage that a step lies in.
func stageOfRun(e *resource.Entry) string {
	if e.Scope == resource.ScopeStep {
		return StageOf(e.Node)
	}
	return e.Node
}

// StageEntry is whose workspace an entry's host keeps for it: the stage's run and
// node. It is for hosts that look whether the stage still lives.
func StageEntry(e *resource.Entry) (runKey, node, workflowID string) {
	node = stageOfRun(e)
	return e.RunKey, node, run.ChildID(e.WorkflowID, e.RunKey, node)
}
