package e2e_test

import (
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
	"belay.run/starter/runs"
	"belay.run/workflows"
)

// TestWorkerAndServerAreKilled is woodpecker-ci/woodpecker#178: when both are back,
// the run does not stay running for ever.
func TestWorkerAndServerAreKilled(t *testing.T) {
	t.Parallel()
	env := e2e.Start(t, e2e.Options{Data: t.TempDir(), NoWorker: true})
	mark := seconds(371)
	w := env.StartWorker(t, t.TempDir(), "--labels", "both")
	r := env.Run(t, on("both", `
    steps: [{name: a, grace_period: 1s, run: "echo ready; setsid sleep `+mark+` & sleep `+mark+`"}]
    finally: [{name: tidy, run: echo tidied}]
`))
	r.WaitLog("s/a", "ready")
	w.Kill()
	env.RestartTemporal(t)
	env.StartWorker(t, w.StateDir, "--labels", "both")
	r = env.Follow(t, r.Ref)
	doc := r.Wait()
	requireGone(t, mark)
	require.Equal(t, run.Failed, doc.Status)
	require.Equal(t, run.TriggerWorkerLost, doc.Cause.Trigger)
	require.Contains(t, r.Log("s/tidy"), "tidied")
}

// TestCancelOfARunWhoseHostIsNoMore is spinnaker/spinnaker#6443: nobody will ever
// say what became of what the host had. A cancel ends the run all the same, and says
// what was not proved to be released.
func TestCancelOfARunWhoseHostIsNoMore(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	mark := seconds(372)
	w := env.StartWorker(t, t.TempDir(), "--labels", "no-more")
	r := env.Run(t, on("no-more", `
    steps: [{name: a, grace_period: 1s, run: "echo ready; sleep `+mark+`"}]
    finally: [{name: tidy, run: echo tidied}]
`)+"release_timeout: 10s\n")
	r.WaitLog("s/a", "ready")
	w.Kill()
	require.NoError(t, os.RemoveAll(w.StateDir))
	got := env.CLI(t, "cancel", r.String(), "--now", "--wait")
	require.Equal(t, 1, got.Code, got.Stdout+got.Stderr)
	require.Contains(t, got.Stderr, "not released: workspace")
	requireGone(t, mark)
	require.True(t, r.Wait().Status.Terminal())
	require.Contains(t, env.CLI(t, "resources", "--leaked", r.String()).Stdout, "workspace")
}

// TestAnotherHasTheIDOfAStage is temporalio/temporal#2390: a workflow of somebody
// else has the id which a stage is to have. Whatever becomes of the run, the other
// is left alone.
func TestAnotherHasTheIDOfAStage(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	for name, ended := range map[string]struct {
		by   func(t *testing.T, holder, r *e2e.Run)
		want run.Status
	}{
		"Cancel": {func(t *testing.T, _, r *e2e.Run) {
			t.Helper()
			require.Equal(t, 0, env.CLI(t, "cancel", r.String(), "--wait").Code)
		}, run.Cancelled},
		"CancelNow": {func(t *testing.T, _, r *e2e.Run) {
			t.Helper()
			require.Equal(t, 0, env.CLI(t, "cancel", r.String(), "--now", "--wait").Code)
		}, run.Cancelled},
		"Terminate": {func(t *testing.T, _, r *e2e.Run) {
			t.Helper()
			require.NoError(t, env.Temporal.Client().TerminateWorkflow(t.Context(), r.ID, r.RunID, "enough"))
			require.Eventually(t, func() bool {
				janitorPass(t, env)
				return reaped(t, env, r.RunID, "")
			}, e2e.Patience, 500*time.Millisecond, "the run is not reaped")
		}, run.Cancelled},
		"ItsTurnComes": {func(t *testing.T, holder, _ *e2e.Run) { t.Helper(); holder.Cancel("") }, run.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := uuid.NewString()
			holder := env.Run(t, inGroup("{group: "+group+"}", "echo ready; sleep "+seconds(373)))
			holder.WaitLog("s/a", "ready")
			r := env.Run(t, inGroup("{group: "+group+"}", "echo never"))
			r.WaitFor("it waits for its turn", func(d *run.Document) bool { return d.WaitingFor != nil })
			other := anothersRun(t, env, run.ChildID(r.ID, r.RunID, "s"))
			ended.by(t, holder, r)
			require.Equal(t, ended.want, r.Wait().Status)
			require.Empty(t, told(t, env, other.Ref))
			require.Empty(t, told(t, env, runs.Ref{ID: other.Document().Stages[0].WorkflowID}))
		})
	}
}

// anothersRun starts a run of another tenant under an id, whose stage waits for a
// host.
func anothersRun(t *testing.T, env *e2e.Env, id string) *e2e.Run {
	t.Helper()
	other, err := env.Temporal.Client().ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: id, TaskQueue: run.QueueWorkflows, WorkflowTaskTimeout: workflows.TaskTimeout(0),
	}, workflows.PipelineWorkflow, workflows.PipelineInput{
		File:   "version: 1\nname: theirs\nstages: [{name: s, runs_on: nobody, steps: [{name: a, run: echo a}]}]\n",
		Tenant: "another", Project: "another", RequestID: uuid.NewString(), Sender: "another@e2e",
	})
	require.NoError(t, err)
	r := env.Follow(t, runs.Ref{ID: other.GetID(), RunID: other.GetRunID()})
	r.WaitFor("its stage waits for a host", func(d *run.Document) bool { return len(d.Stages) == 1 && d.Stages[0].WaitingFor != nil })
	return r
}

// told is what a workflow was told of from outside, or by Temporal: that it is to
// cancel, or has ended.
func told(t *testing.T, env *e2e.Env, r runs.Ref) []string {
	t.Helper()
	var events []string
	history := env.Temporal.Client().GetWorkflowHistory(t.Context(), r.ID, r.RunID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(t, err)
		switch event.GetEventType() {
		case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
			enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
			events = append(events, event.String())
		default:
		}
	}
	return events
}
