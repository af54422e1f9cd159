package activities

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"belay.run/internal/cancels"
	"belay.run/internal/router"
	"belay.run/internal/run"
	"belay.run/internal/slots"
	"belay.run/internal/spec"
)

// Control holds the activities that stand beside the workflows on their queue.
type Control struct {
	client    client.Client
	namespace string
	cancels   *cancels.Cancels
	router    *router.Router
	runs      slots.Quotas
}

// NewControl returns Control over a connection to Temporal and its namespace. The
// router says where built-in steps run, runs how many of them a tenant may have.
// Hosts are told of cancels through told, which may be nil.
func NewControl(c client.Client, namespace string, r *router.Router, runs slots.Quotas, told *cancels.Cancels) *Control {
	return &Control{client: c, namespace: namespace, router: r, runs: runs, cancels: told}
}

// Plan parses and checks a pipeline file, binds its inputs and freezes it, so
// that whatever starts a run sends text, and a newer parser breaks no replay.
func (c *Control) Plan(ctx context.Context, in PlanInput) (*spec.Plan, error) {
	unstick(ctx, c.client, c.namespace)
	file, report := spec.Parse(in.Path, []byte(in.File))
	if err := report.Err(); err != nil {
		return nil, invalid(err)
	}
	plan, err := file.Plan(in.Inputs)
	if err != nil {
		return nil, invalid(err)
	}
	if s := plan.Source; s != nil && s.Path != "" && in.SourceRef == "" && !filepath.IsAbs(s.Path) {
		return nil, invalid(fmt.Errorf("source.path %q: a run that the starter did not start "+
			"has no folder to resolve it in: use an absolute path on the workers, or source.git", s.Path))
	}
	plan.TenantRuns = c.runs.Of(in.Tenant)
	return c.router.Apply(plan), nil
}

// invalid is the error of a file or of inputs that nobody can run.
func invalid(err error) error {
	return fail(run.Cause{Trigger: run.TriggerInvalid, Message: err.Error()})
}

// CancelCause reads from a workflow's history who asked for its cancel and why:
// neither Temporal's UI nor its CLI passes a reason on to the workflow. The hosts
// of a whole run hear of it from here, before its stages do.
func (c *Control) CancelCause(ctx context.Context, in CauseInput) (*CancelCause, error) {
	unstick(ctx, c.client, c.namespace)
	why, err := c.cancelCause(ctx, in)
	if err == nil && in.RunKey != "" {
		if err := c.TellHosts(ctx, cancels.Cancel{RunKey: in.RunKey, Cause: why.Cause}); err != nil {
			activity.GetLogger(ctx).Debug("the hosts hear of a cancel from its stages only", "error", err)
		}
	}
	return why, err
}

// TellHosts tells all hosts that a run is stopped. They hear of it from its
// stages too, if not so soon.
func (c *Control) TellHosts(ctx context.Context, cancel cancels.Cancel) error {
	return c.cancels.Announce(ctx, cancel)
}

func (c *Control) cancelCause(ctx context.Context, in CauseInput) (*CancelCause, error) {
	token := []byte(nil)
	for {
		resp, err := c.client.WorkflowService().GetWorkflowExecutionHistoryReverse(ctx,
			&workflowservice.GetWorkflowExecutionHistoryReverseRequest{
				Namespace:       c.namespace,
				Execution:       &commonpb.WorkflowExecution{WorkflowId: in.WorkflowID, RunId: in.RunID},
				MaximumPageSize: 50,
				NextPageToken:   token,
			})
		if err != nil {
			return nil, fmt.Errorf("reading the history of %s: %w", in.WorkflowID, err)
		}
		for _, event := range resp.GetHistory().GetEvents() {
			if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED {
				return readCause(event), nil
			}
		}
		if token = resp.GetNextPageToken(); len(token) == 0 {
			return &CancelCause{Cause: run.Cause{Trigger: run.TriggerUser}}, nil
		}
	}
}

// MaintenancePrefix begins the reason of a cancel that a draining worker asks
// for; SupersededPrefix that of one made way for by a newer run.
const (
	MaintenancePrefix = "maintenance: "
	SupersededPrefix  = "superseded: "
)

func readCause(event *historypb.HistoryEvent) *CancelCause {
	attrs := event.GetWorkflowExecutionCancelRequestedEventAttributes()
	out := &CancelCause{
		FromParent: attrs.GetExternalWorkflowExecution().GetWorkflowId() != "",
		Cause:      run.Cause{Trigger: run.TriggerUser, By: attrs.GetIdentity(), Message: attrs.GetCause()},
		At:         event.GetEventTime().AsTime(),
	}
	for prefix, trigger := range map[string]run.Trigger{
		MaintenancePrefix: run.TriggerMaintenance,
		SupersededPrefix:  run.TriggerSuperseded,
	} {
		if rest, ok := strings.CutPrefix(attrs.GetCause(), prefix); ok {
			out.Cause.Trigger, out.Cause.Message = trigger, rest
		}
	}
	return out
}

// unstick frees the workflow of a retried activity from the sticky queue of a
// worker that has probably died: the activity is retried because something
// died, and the workflow's next task would first wait there in vain.
func unstick(ctx context.Context, c client.Client, namespace string) {
	info := activity.GetInfo(ctx)
	if info.Attempt <= 1 || c == nil {
		return
	}
	_, err := c.WorkflowService().ResetStickyTaskQueue(ctx, &workflowservice.ResetStickyTaskQueueRequest{
		Namespace: namespace,
		Execution: &commonpb.WorkflowExecution{WorkflowId: info.WorkflowExecution.ID, RunId: info.WorkflowExecution.RunID},
	})
	var gone *serviceerror.NotFound
	if err != nil && !errors.As(err, &gone) {
		activity.GetLogger(ctx).Debug("could not reset the sticky queue", "error", err)
	}
}
