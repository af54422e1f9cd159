package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"belay.run/internal/run"
	"belay.run/workflows"
)

// Asker is who asks for a cancel, and why. The run keeps both as its cause.
type Asker struct {
	Identity string
	Reason   string
}

// Cancel asks a run, or a stage by its workflow, to cancel. It returns when
// Temporal has recorded the request. To ask twice is harmless.
func (c *Client) Cancel(ctx context.Context, ref Ref, by Asker) error {
	// The SDK's own call passes neither reason nor identity on.
	_, err := c.temporal.WorkflowService().RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{
		Namespace:         c.namespace,
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: ref.ID, RunId: ref.RunID},
		Identity:          by.Identity,
		Reason:            by.Reason,
		RequestId:         uuid.NewString(),
	})
	if err != nil {
		return fmt.Errorf("asking %s to cancel: %w", ref.ID, err)
	}
	return nil
}

// CancelNow asks a run to cancel and to leave out what finally steps have not
// run yet.
func (c *Client) CancelNow(ctx context.Context, ref Ref, by Asker) error {
	if err := c.temporal.SignalWorkflow(ctx, ref.ID, ref.RunID, workflows.NowSignal, nil); err != nil {
		return fmt.Errorf("asking %s to leave out finally: %w", ref.ID, err)
	}
	return c.Cancel(ctx, ref, by)
}

// NodeError says why a node cannot be cancelled.
type NodeError struct {
	Node   string
	Reason string
	// Known are the nodes there are, where the node is not one of them.
	Known []string
}

// Error names the node and the reason.
func (e *NodeError) Error() string { return fmt.Sprintf("cannot cancel %s: %s", e.Node, e.Reason) }

// CancelNode asks one stage (all legs of it, where it has a matrix and none is
// named) or one step of a run to cancel. The error is a *NodeError where there
// is nothing to cancel.
func (c *Client) CancelNode(ctx context.Context, d *run.Document, node string, by Asker) error {
	var asked int
	for i := range d.Stages {
		s := &d.Stages[i]
		switch {
		case s.Node == node || s.Name == node:
			if s.Status.Terminal() || s.WorkflowID == "" {
				continue
			}
			if err := c.Cancel(ctx, Ref{ID: s.WorkflowID, RunID: s.RunID}, by); err != nil {
				return err
			}
			asked++
		case strings.HasPrefix(node, s.Node+"/"):
			return c.cancelStep(ctx, s, node, by)
		}
	}
	if asked == 0 {
		return nothingToCancel(d, node)
	}
	return nil
}

func (c *Client) cancelStep(ctx context.Context, s *run.Stage, node string, by Asker) error {
	i := slices.IndexFunc(s.Steps, func(p run.Step) bool { return p.Node == node })
	switch {
	case s.Status.Terminal():
		return &NodeError{Node: node, Reason: "its stage has already ended: " + string(s.Status)}
	case s.WorkflowID == "":
		return &NodeError{Node: node, Reason: "its stage has not started"}
	case i < 0 && len(s.Steps) > 0:
		return &NodeError{Node: node, Reason: "the stage has no such step", Known: stepNodes(s)}
	case i >= 0 && s.Steps[i].Status.Terminal():
		return &NodeError{Node: node, Reason: "it has already ended: " + string(s.Steps[i].Status)}
	}
	handle, err := c.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		UpdateID: uuid.NewString(), WorkflowID: s.WorkflowID, RunID: s.RunID,
		UpdateName: workflows.CancelNodeUpdate, WaitForStage: client.WorkflowUpdateStageCompleted,
		Args: []any{workflows.CancelNode{Node: node, Reason: by.Reason, By: by.Identity}},
	})
	if err == nil {
		err = handle.Get(ctx, nil)
	}
	if err != nil {
		return fmt.Errorf("asking %s to cancel: %w", node, err)
	}
	return nil
}

// nothingToCancel says what there is instead.
func nothingToCancel(d *run.Document, node string) error {
	known := make([]string, 0, len(d.Stages))
	reason := "the run has no such node"
	for i := range d.Stages {
		s := &d.Stages[i]
		known = append(known, s.Node)
		if s.Node == node || s.Name == node {
			reason = "it has not started"
			if s.Status.Terminal() {
				reason = "it has already ended: " + string(s.Status)
			}
			return &NodeError{Node: node, Reason: reason}
		}
	}
	return &NodeError{Node: node, Reason: reason, Known: known}
}

func stepNodes(s *run.Stage) []string {
	nodes := make([]string, 0, len(s.Steps))
	for i := range s.Steps {
		nodes = append(nodes, s.Steps[i].Node)
	}
	return nodes
}

// IsNodeError reports whether err is a *NodeError.
func IsNodeError(err error) bool {
	var node *NodeError
	return errors.As(err, &node)
}
