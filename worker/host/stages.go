package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/zap"

	"belay.run/activities"
	"belay.run/internal/config"
	"belay.run/internal/container"
	"belay.run/internal/proc"
	"belay.run/internal/workspace"
)

// askWithin bounds one question to Temporal about a stage.
const askWithin = 5 * time.Second

// stages knows the stages that are bound to this host, and asks Temporal about
// them.
type stages struct {
	host      *workspace.Host
	temporal  *config.Temporal
	processes *proc.Host
	resources *activities.Resources // nil: none are swept
	// containers is nil where this machine has no engine.
	containers *container.Host
	log        *zap.Logger
	by         string

	sweeping sync.Mutex
	lastErr  string
}

func newStages(w *Worker) *stages {
	return &stages{
		host: w.host, temporal: w.deps.temporal, processes: w.deps.processes,
		resources: w.deps.resources, containers: w.deps.containers, log: w.log, by: w.identity,
	}
}

// ended reports whether no run of the stage's workflow is open any more. An
// error means that nobody knows, and so that it may be.
func (s *stages) ended(ctx context.Context, b workspace.Binding) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	// Any run of that workflow counts: one that was reset goes on under
	// another run id, with the workspace of the first.
	resp, err := s.temporal.WorkflowService().DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: s.temporal.Namespace,
		Execution: &commonpb.WorkflowExecution{WorkflowId: b.WorkflowID},
	})
	var gone *serviceerror.NotFound
	switch {
	case errors.As(err, &gone):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("asking Temporal about %s: %w", b.WorkflowID, err)
	}
	switch resp.GetWorkflowExecutionInfo().GetStatus() {
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, enumspb.WORKFLOW_EXECUTION_STATUS_FAILED,
		enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED,
		enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return true, nil
	default:
		return false, nil
	}
}

// cancel asks the stage's workflow to end because this worker does.
func (s *stages) cancel(ctx context.Context, b workspace.Binding, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	_, err := s.temporal.WorkflowService().RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{
		Namespace:         s.temporal.Namespace,
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: b.WorkflowID},
		Identity:          s.by,
		RequestId:         uuid.NewString(),
		Reason:            activities.MaintenancePrefix + reason,
	})
	var gone *serviceerror.NotFound
	if err != nil && !errors.As(err, &gone) {
		return fmt.Errorf("asking %s to cancel: %w", b.WorkflowID, err)
	}
	return nil
}

// sweep ends the processes and removes the containers and workspaces of stages
// that ended without releasing them, as one does that is terminated.
func (s *stages) sweep(ctx context.Context) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	silent := false
	were, err := s.host.Bindings()
	if err != nil {
		s.log.Debug("could not read all stages before a sweep", zap.Error(err))
	}
	unclean := s.removeOfEarlierBoots(ctx, were)
	err = s.host.Sweep(ctx, func(ctx context.Context, b workspace.Binding) (bool, error) {
		if silent {
			return true, nil // one unanswered question is enough
		}
		ended, err := s.ended(ctx, b)
		if err != nil || !ended {
			silent = err != nil
			return true, err
		}
		s.log.Info("removing what an ended stage left", zap.String("run", b.RunKey), zap.String("node", b.Node))
		if err := s.processes.EndNode(ctx, b.RunKey+"/"+b.Node); err != nil {
			return true, fmt.Errorf("ending the processes of %s: %w", b.Node, err)
		}
		err = activities.RemoveContainers(ctx, s.host, s.containers, b.RunKey, b.Node)
		return err != nil, err
	})
	s.settleWorkspaces(ctx, slices.DeleteFunc(were, func(b workspace.Binding) bool { return slices.Contains(unclean, b) }))
	rest := silent
	if !silent {
		var left error
		rest, left = s.sweepResources(ctx)
		err = errors.Join(err, left, s.sweepContainers(ctx))
	}
	s.report(err, rest)
}

// removeOfEarlierBoots removes the containers of stages that were bound here before
// the machine booted: their workspaces are swept without a question. It returns
// those of which some may be left.
func (s *stages) removeOfEarlierBoots(ctx context.Context, bindings []workspace.Binding) (unclean []workspace.Binding) {
	for _, b := range bindings {
		if b.Boot == s.host.Boot() {
			continue
		}
		if err := activities.RemoveContainers(ctx, s.host, s.containers, b.RunKey, b.Node); err != nil {
			s.log.Debug("could not remove the containers of a stage from before the boot", zap.String("node", b.Node), zap.Error(err))
			unclean = append(unclean, b)
		}
	}
	return unclean
}

// settleWorkspaces writes down which of the workspaces that were here are given
// back: their stages may have said that they could not be. What cannot be written
// is for the janitor, which asks this host then.
func (s *stages) settleWorkspaces(ctx context.Context, were []workspace.Binding) {
	if s.resources == nil || len(were) == 0 {
		return
	}
	are, err := s.host.Bindings()
	if err != nil {
		s.log.Debug("could not read all stages after a sweep", zap.Error(err))
		return
	}
	for _, b := range were {
		if slices.ContainsFunc(are, func(o workspace.Binding) bool { return o.RunKey == b.RunKey && o.Node == b.Node }) {
			continue
		}
		if err := activities.SettleWorkspace(ctx, s.resources, b.RunKey, b.Node); err != nil {
			s.log.Debug("could not write down that a workspace is given back", zap.String("run", b.RunKey), zap.String("node", b.Node), zap.Error(err))
		}
	}
}

// report logs what a sweep could not do, once as long as it stays the same. One
// that let something rest does not say that it could do all.
func (s *stages) report(err error, rest bool) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != s.lastErr {
		s.log.Warn("could not remove all that is left on this host; trying again later", zap.Error(err))
	}
	if text != "" || !rest {
		s.lastErr = text
	}
}
