// Package liveness asks Temporal whether the owner of a claim still lives. No
// clock decides: a run lives as long as it is open, and as long as any workflow
// of its tree is, since its stages end what runs on hosts after it has closed.
package liveness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"belay.run/internal/dedup"
	"belay.run/internal/pause"
	"belay.run/internal/run"
)

const (
	// patience bounds each question.
	patience = 5 * time.Second
	// again is how long after a first answer the second one is asked for.
	again = 500 * time.Millisecond
)

// Answer is what Temporal knows of an owner.
type Answer struct {
	// Alive: the run, or a workflow of its tree, is open, or Temporal could not
	// say. Nothing may be taken from it.
	Alive bool
	// Unsure: it counts as alive only because Temporal could not be asked; Err
	// says why.
	Unsure bool
	Err    error
	// Status is how the run ended where it is dead; empty where its history is
	// gone and nobody knows.
	Status run.Status
	// EndedAt is when; zero where nobody knows.
	EndedAt time.Time
}

// State is that of a claim whose owner is dead and has not said itself how it
// ended.
func (a Answer) State() dedup.State {
	switch a.Status {
	case run.Succeeded, run.Duplicate, run.Skipped:
		return dedup.Completed
	case run.Cancelled:
		return dedup.Canceled
	case run.Failed, run.TimedOut, run.Pending, run.Running, run.Cancelling:
	}
	return dedup.Failed
}

// Asker asks Temporal. It is safe for concurrent use.
type Asker struct {
	client    client.Client
	namespace string
}

// New returns an Asker over a connection to Temporal and its namespace.
func New(c client.Client, namespace string) *Asker {
	return &Asker{client: c, namespace: namespace}
}

// Ask tells whether an owner lives. Temporal out of reach means that it does.
func (a *Asker) Ask(ctx context.Context, owner dedup.Owner) Answer {
	answer, err := a.ask(ctx, owner)
	if err == nil && !answer.Alive && !answer.byItself() {
		// A stage that had just been started may not be known to Temporal's
		// visibility yet, which is a moment behind.
		if err = pause.For(ctx, again); err == nil {
			answer, err = a.ask(ctx, owner)
		}
	}
	if err != nil {
		return Answer{Alive: true, Unsure: true, Err: fmt.Errorf("asking whether run %s lives: %w", owner.WorkflowID, err)}
	}
	return answer
}

// byItself: the run ended by its own code, which waits for its stages.
func (a Answer) byItself() bool { return a.Status == run.Succeeded || a.Status == run.Failed }

func (a *Asker) ask(ctx context.Context, owner dedup.Owner) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	last, err := a.last(ctx, owner)
	if err != nil {
		return Answer{}, err
	}
	if last != nil && open(last.GetStatus()) {
		return Answer{Alive: true}, nil
	}
	if alive, err := a.treeOpen(ctx, owner); alive || err != nil {
		return Answer{Alive: alive}, err
	}
	if last == nil {
		return Answer{}, nil
	}
	return Answer{Status: ended(last.GetStatus()), EndedAt: last.GetCloseTime().AsTime()}, nil
}

// last is the newest execution of the owner's run: the run key is the first of
// them, and a reset or a continue-as-new begins others under it. It is nil where
// Temporal knows none.
func (a *Asker) last(ctx context.Context, owner dedup.Owner) (*workflowpb.WorkflowExecutionInfo, error) {
	// The newest under the id comes first: where it is the owner's, no other is
	// asked for.
	newest, err := a.describe(ctx, owner.WorkflowID, "")
	if err != nil || newest != nil && newest.GetFirstRunId() == owner.RunKey {
		return newest, err
	}
	for _, runID := range []string{owner.RunID, owner.RunKey} {
		if runID == "" {
			continue
		}
		if info, err := a.describe(ctx, owner.WorkflowID, runID); err != nil || info != nil {
			return info, err
		}
	}
	return nil, nil //nolint:nilnil // Temporal keeps histories for a time only
}

// describe is what the server knows of an execution, nil where it knows nothing.
func (a *Asker) describe(ctx context.Context, id, runID string) (*workflowpb.WorkflowExecutionInfo, error) {
	d, err := a.describeAll(ctx, id, runID)
	return d.GetWorkflowExecutionInfo(), err
}

// describeAll is describe with all that the server says.
func (a *Asker) describeAll(ctx context.Context, id, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	resp, err := a.client.WorkflowService().DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: a.namespace,
		Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: runID},
	})
	var gone *serviceerror.NotFound
	var never *serviceerror.InvalidArgument // what is no run id was never one
	switch {
	case errors.As(err, &gone), errors.As(err, &never) && runID != "":
		return nil, nil //nolint:nilnil // as above
	case err != nil:
		return nil, fmt.Errorf("describing workflow %s: %w", id, err)
	}
	return resp, nil
}

// treeOpen reports whether a stage of the run is still open.
func (a *Asker) treeOpen(ctx context.Context, owner dedup.Owner) (bool, error) {
	resp, err := a.client.WorkflowService().ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: a.namespace, PageSize: few,
		Query: "ExecutionStatus = 'Running' AND " + stagesOf(owner),
	})
	if err != nil {
		return false, fmt.Errorf("looking for open stages of run %s: %w", owner.WorkflowID, err)
	}
	// What there is more of may be the run's.
	return len(resp.GetNextPageToken()) > 0 || len(ofRun(owner, resp.GetExecutions())) > 0, nil
}

// ofRun leaves of workflows those that a run started, as far as the server says who
// started them: an id may begin as those of the run's stages do and be another's.
func ofRun(owner dedup.Owner, found []*workflowpb.WorkflowExecutionInfo) []*workflowpb.WorkflowExecutionInfo {
	return slices.DeleteFunc(found, func(info *workflowpb.WorkflowExecutionInfo) bool {
		parent := info.GetParentExecution().GetWorkflowId()
		return parent != "" && parent != owner.WorkflowID
	})
}

// stagesOf is the condition by which Temporal finds the stages of a
// run, and perhaps some of another, which [ofRun] leaves out. Their ids begin with
// the run's id and its key.
func stagesOf(owner dedup.Owner) string {
	return "WorkflowType = 'Stage' AND WorkflowId STARTS_WITH " + quote(run.ChildID(owner.WorkflowID, owner.RunKey, ""))
}

// quote makes a literal of Temporal's query language.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

func open(s enumspb.WorkflowExecutionStatus) bool {
	return s == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING || s == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED ||
		s == enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
}

// ended is the state of a run by how its workflow closed.
func ended(s enumspb.WorkflowExecutionStatus) run.Status {
	switch s {
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return run.Succeeded
	case enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return run.Cancelled
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return run.TimedOut
	default:
		return run.Failed
	}
}
