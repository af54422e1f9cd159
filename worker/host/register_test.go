package host

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
)

// registry notes what is registered.
type registry struct {
	workflows, activities []string
}

func (r *registry) RegisterWorkflow(any) {}

func (r *registry) RegisterWorkflowWithOptions(_ any, o workflow.RegisterOptions) {
	r.workflows = append(r.workflows, o.Name)
}

func (r *registry) RegisterDynamicWorkflow(any, workflow.DynamicRegisterOptions) {}

// RegisterActivity notes what the SDK makes of a struct: each exported method
// that takes a context.
func (r *registry) RegisterActivity(a any) {
	for m := range reflect.TypeOf(a).Methods() {
		if m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]() {
			r.activities = append(r.activities, m.Name)
		}
	}
	slices.Sort(r.activities)
}

func (r *registry) RegisterActivityWithOptions(any, activity.RegisterOptions)    {}
func (r *registry) RegisterDynamicActivity(any, activity.DynamicRegisterOptions) {}
func (r *registry) RegisterNexusService(*nexus.Service)                          {}

// TestRegistered pins what runs where: a name that vanishes leaves runs of an
// older worker without anybody who can go on with them.
func TestRegistered(t *testing.T) {
	t.Parallel()
	acts := &registered{
		resources: new(activities.Resources),
		control:   new(activities.Control), groups: new(activities.Groups), binder: new(activities.Binder),
		steps: new(activities.Steps), light: new(activities.Light), claims: new(activities.Claims),
		reaper: new(activities.Reaper), notifier: new(activities.Notifier), batches: new(activities.Batches),
	}
	var workflows, steps, host, light, batch registry
	acts.registerWorkflows(&workflows)
	acts.registerSteps(&steps)
	acts.registerHost(&host)
	acts.registerLight(&light)
	acts.registerBatch(&batch)

	require.Equal(t, []string{"Pipeline", "Stage", "Group", "Reap", "Janitor", "Batch", "BatchPart"}, workflows.workflows)
	require.Equal(t, []string{
		"AcquireSlot", "AwaitClosed", "AwaitRun", "CancelCause", "ClaimRun", "ConfirmReaped", "Expire", "FindClosed", "HostAlive",
		"MarkLeaked", "Notify", "Plan", "ReleaseSlot", "Remains", "RunChunk", "RunLight", "RunTask",
		"SettleChunks", "SettleRun", "SettleStep", "SlotOwners", "Supersede", "SupersedeSlots", "TellHosts",
	}, workflows.activities)
	require.Equal(t, []string{"Bind", "ReleaseResources"}, steps.activities)
	require.Equal(t, []string{"End", "KeepResources", "Prepare", "Release", "ReleaseResources", "RunLight", "RunStep", "RunTask", "SaveArtifacts", "StartServices", "TakeResources"}, host.activities)
	require.Equal(t, []string{"ReleaseResources", "RunLight", "RunTask"}, light.activities)
	require.Equal(t, []string{"RunChunk", "SettleChunks"}, batch.activities)
	for _, r := range []registry{steps, host, light, batch} {
		require.Empty(t, r.workflows)
	}
}
