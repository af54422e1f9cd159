package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"belay.run/internal/dedup"
	"belay.run/internal/liveness"
	"belay.run/internal/run"
)

const (
	// closings is how often a request is sent anew to a group that closed at
	// just that moment, before the activity is retried.
	closings = 10
	// looksAtOnce bounds the questions to Temporal that are under way.
	looksAtOnce = 8
)

// Groups holds the activities by which members of a concurrency group speak to
// it, and those by which it learns of them.
type Groups struct {
	client    client.Client
	namespace string
	asker     *liveness.Asker
}

// NewGroups returns Groups over a connection to Temporal and its namespace.
func NewGroups(c client.Client, namespace string) *Groups {
	return &Groups{client: c, namespace: namespace, asker: liveness.New(c, namespace)}
}

// AcquireSlot asks a group for a slot. The answer is a signal to the member.
func (g *Groups) AcquireSlot(ctx context.Context, in SlotInput) error {
	in.Request.Release = false
	return g.send(ctx, in)
}

// ReleaseSlot gives a slot, or a place in the queue, back. It reaches the group
// even if what asks for the slot is still on its way, so that nobody stands in
// the queue who has left.
func (g *Groups) ReleaseSlot(ctx context.Context, in SlotInput) error {
	in.Request.Release = true
	return g.send(ctx, in)
}

// send signals a group, which is started where it is not there. One that has no
// members closes itself; a request that meets it in that moment is sent again.
func (g *Groups) send(ctx context.Context, in SlotInput) error {
	unstick(ctx, g.client, g.namespace)
	opts := groupOptions(in.Tenant, in.Project, in.Group)
	start := GroupInput{Tenant: in.Tenant, Project: in.Project, Name: in.Group}
	var err error
	for range closings {
		_, err = g.client.SignalWithStartWorkflow(ctx, opts.ID, SlotSignal, in.Request, opts, GroupWorkflow, start)
		var started *serviceerror.WorkflowExecutionAlreadyStarted
		var gone *serviceerror.NotFound
		if !errors.As(err, &started) && !errors.As(err, &gone) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("signalling the group %s: %w", in.Group, err)
	}
	return nil
}

// groupOptions are those of the workflow of a group.
func groupOptions(tenant, project, name string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       run.GroupID(tenant, project, name),
		TaskQueue:                run.QueueWorkflows,
		WorkflowTaskTimeout:      GroupTaskTimeout,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            "concurrency group " + name,
	}
}

// SlotOwners looks which members of a group still live. A run that is closed
// lives as long as a stage of it is open: it may be ending what runs on hosts.
func (g *Groups) SlotOwners(ctx context.Context, in OwnersInput) ([]OwnerLife, error) {
	unstick(ctx, g.client, g.namespace)
	lives := make([]OwnerLife, len(in.Owners))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(looksAtOnce)
	for i, o := range in.Owners {
		group.Go(func() error {
			owner := dedup.Owner{RunKey: o.RunKey, Node: o.Node, WorkflowID: o.WorkflowID, RunID: o.RunID}
			if o.Node != "" {
				owner.RunKey = o.RunID // a stage's workflow has no run key but its own
			}
			answer := g.asker.Ask(ctx, owner)
			if answer.Unsure {
				activity.GetLogger(ctx).Warn("could not look whether a member of a group lives", "workflow", o.WorkflowID, "error", answer.Err)
			}
			lives[i] = OwnerLife{Alive: answer.Alive, EndedAt: answer.EndedAt}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("looking which members live: %w", err)
	}
	return lives, nil
}

// SupersedeSlots cancels members that make way for newer ones. Those that have
// closed meanwhile are left alone.
func (g *Groups) SupersedeSlots(ctx context.Context, in MakeWayInput) error {
	unstick(ctx, g.client, g.namespace)
	for _, r := range in.Replaced {
		_, err := g.client.WorkflowService().RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{
			Namespace:         g.namespace,
			WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: r.Owner.WorkflowID, RunId: r.Owner.RunID},
			Identity:          r.By,
			Reason:            SupersededPrefix + "it took over the group " + in.Group,
			RequestId:         uuid.NewString(),
		})
		var gone *serviceerror.NotFound
		if err != nil && !errors.As(err, &gone) {
			return fmt.Errorf("cancelling %s: %w", r.Owner.WorkflowID, err)
		}
	}
	return nil
}

// SlotOwnerName is how a member of a group is called before people: the id of
// its run, and the stage if it is one.
func SlotOwnerName(o Owner) string {
	id, _, _ := strings.Cut(o.WorkflowID, "/"+o.RunKey+"/")
	if o.Node == "" {
		return id
	}
	return id + " " + o.Node
}
