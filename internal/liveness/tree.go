package liveness

import (
	"context"
	"fmt"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"belay.run/internal/dedup"
	"belay.run/internal/run"
)

const (
	// page is how many stages of a run are read at once.
	page = 1000
	// few are enough to find one that is open.
	few = 10
)

// Tree is what Temporal knows of a run and of its stages.
type Tree struct {
	// Run is the newest execution of the run, nil where its history is gone.
	Run *workflowpb.WorkflowExecutionInfo
	// Stages are those that are open, or that were ended from outside.
	Stages []*workflowpb.WorkflowExecutionInfo
}

// RunOpen reports whether the run itself is open.
func (t *Tree) RunOpen() bool { return t.Run != nil && open(t.Run.GetStatus()) }

// OpenStages are the stages that have not closed.
func (t *Tree) OpenStages() []*workflowpb.WorkflowExecutionInfo {
	return t.stages(true)
}

// CutStages are those that closed without coming to their end: by Terminate, or
// by a fault of their own.
func (t *Tree) CutStages() []*workflowpb.WorkflowExecutionInfo {
	return t.stages(false)
}

func (t *Tree) stages(want bool) []*workflowpb.WorkflowExecutionInfo {
	var out []*workflowpb.WorkflowExecutionInfo
	for _, s := range t.Stages {
		if open(s.GetStatus()) == want {
			out = append(out, s)
		}
	}
	return out
}

// Status is how the run ended; empty where nobody knows.
func (t *Tree) Status() run.Status {
	if t.Run == nil {
		return ""
	}
	return ended(t.Run.GetStatus())
}

// Tree looks at a run and its stages. Unlike [Asker.Ask] it fails where Temporal
// cannot be asked, and asks once only: a stage that has just been started may
// not be known yet.
func (a *Asker) Tree(ctx context.Context, owner dedup.Owner) (*Tree, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	last, err := a.last(ctx, owner)
	if err != nil {
		return nil, err
	}
	tree := &Tree{Run: last}
	query := &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: a.namespace, PageSize: page,
		// A stage that comes to its end publishes how, before it closes.
		Query: stagesOf(owner) +
			" AND BelayStatus IN ('" + string(run.Running) + "', '" + string(run.Pending) + "', '" + string(run.Cancelling) + "')",
	}
	for {
		resp, err := a.client.WorkflowService().ListWorkflowExecutions(ctx, query)
		if err != nil {
			return nil, fmt.Errorf("looking for the stages of run %s: %w", owner.WorkflowID, err)
		}
		tree.Stages = append(tree.Stages, ofRun(owner, resp.GetExecutions())...)
		if query.NextPageToken = resp.GetNextPageToken(); len(query.NextPageToken) == 0 {
			return tree, nil
		}
	}
}

// Describe is what Temporal knows of one workflow, of its newest execution where
// runID is empty; nil where it knows none.
func (a *Asker) Describe(ctx context.Context, id, runID string) (*workflowpb.WorkflowExecutionInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return a.describe(ctx, id, runID)
}

// Open reports whether an execution has not closed.
func Open(info *workflowpb.WorkflowExecutionInfo) bool { return info != nil && open(info.GetStatus()) }
