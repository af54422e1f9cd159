package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"belay.run/internal/dedup"
	"belay.run/internal/liveness"
	"belay.run/internal/pause"
	"belay.run/internal/resource"
	"belay.run/internal/retention"
	"belay.run/internal/run"
	"belay.run/internal/telemetry"
)

// ReaperConfig is what looking after closed runs needs.
type ReaperConfig struct {
	Client    client.Client
	Namespace string
	// Ledger is nil without Redis: then only Temporal's histories tell what may
	// be left.
	Ledger *resource.Ledger
	// Expire removes what was kept for long enough; nil removes nothing.
	Expire func(context.Context) (*retention.Result, error)
	// Overdue counts a run that is found overdue; nil does not.
	Overdue func()
	Logger  *zap.Logger
}

// Reaper holds the activities that find what closed runs left behind. They act on
// nothing that is open, save that they ask stages of a closed run to end.
type Reaper struct {
	cfg    ReaperConfig
	alive  *liveness.Asker
	clocks clocks
}

// NewReaper returns a Reaper.
func NewReaper(cfg ReaperConfig) *Reaper {
	cfg.Logger = telemetry.OrNop(cfg.Logger)
	return &Reaper{cfg: cfg, alive: liveness.New(cfg.Client, cfg.Namespace)}
}

const (
	// closePolicy is how long the stages of a closed run have to hear of it from
	// Temporal, before they are asked to end by the reaper.
	closePolicy = 3 * time.Second
	// settled is how long no stage may be seen before there is none: Temporal's
	// visibility is a moment behind.
	settled = time.Second
	// lookAgain is how often one looks whether a run's stages have closed.
	lookAgain = 500 * time.Millisecond
)

// AwaitClosed waits until all stages of a closed run have closed, and asks those
// to end that have not heard. A run, or a stage, that is open itself is none of
// the reaper's.
func (r *Reaper) AwaitClosed(ctx context.Context, in ReapInput) (*Closed, error) {
	unstick(ctx, r.cfg.Client, r.cfg.Namespace)
	defer beating(ctx)()
	if in.Owner.Node != "" {
		info, err := r.alive.Describe(ctx, in.Owner.WorkflowID, "")
		return &Closed{Open: liveness.Open(info), Status: run.Cancelled}, err
	}
	asked := map[string]bool{}
	began, quiet := time.Now(), time.Time{}
	for {
		tree, err := r.alive.Tree(ctx, claimOwner(in.Owner))
		switch {
		case err != nil:
			return nil, err
		case tree.RunOpen():
			return &Closed{Open: true}, nil
		case len(tree.OpenStages()) > 0:
			quiet = time.Time{}
			if time.Since(began) >= closePolicy {
				if err := r.cancelStages(ctx, tree.OpenStages(), asked); err != nil {
					return nil, err
				}
			}
		case quiet.IsZero():
			quiet = time.Now()
		case time.Since(quiet) >= settled:
			return &Closed{Status: tree.Status()}, nil
		}
		if err := pause.For(ctx, lookAgain); err != nil {
			return nil, err
		}
	}
}

// cancelStages asks each once.
func (r *Reaper) cancelStages(ctx context.Context, stages []*workflowpb.WorkflowExecutionInfo, asked map[string]bool) error {
	for _, s := range stages {
		exec := s.GetExecution()
		if asked[exec.GetRunId()] {
			continue
		}
		_, err := r.cfg.Client.WorkflowService().RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{
			Namespace:         r.cfg.Namespace,
			WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: exec.GetWorkflowId(), RunId: exec.GetRunId()},
			RequestId:         uuid.NewString(),
			Reason:            "its run is closed",
		})
		var gone *serviceerror.NotFound
		if err != nil && !errors.As(err, &gone) {
			return fmt.Errorf("asking %s to cancel: %w", exec.GetWorkflowId(), err)
		}
		asked[exec.GetRunId()] = true
	}
	return nil
}

// ConfirmInput is a run that is closed with nothing left of it.
type ConfirmInput struct {
	RunKey string     `json:"run_key"`
	Status run.Status `json:"status"`
}

// ConfirmReaped writes down that nothing is left of a closed run, which its own
// workflow cannot say any more.
func (r *Reaper) ConfirmReaped(ctx context.Context, in ConfirmInput) error {
	unstick(ctx, r.cfg.Client, r.cfg.Namespace)
	return r.cfg.Ledger.Confirm(ctx, in.RunKey, in.Status)
}

func claimOwner(o Owner) dedup.Owner {
	return dedup.Owner{RunKey: o.RunKey, Node: o.Node, WorkflowID: o.WorkflowID, RunID: o.RunID}
}
