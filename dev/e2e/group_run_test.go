package e2e_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"belay.run/activities"
	"belay.run/dev/e2e"
	"belay.run/internal/run"
	"belay.run/workflows"
)

// inGroup is a file of one step in a concurrency group of the pipeline.
func inGroup(concurrency, script string) string {
	return `
version: 1
name: grouped
concurrency: ` + concurrency + `
stages:
  - name: s
    steps: [{name: a, grace_period: 1s, run: "` + script + `"}]
    finally: [{name: tidy, run: echo tidied}]
finally: [{name: report, run: echo reported}]
`
}

// stageInGroup is a file of two stages, the first in a concurrency group.
func stageInGroup(concurrency, script string) string {
	return `
version: 1
name: grouped
stages:
  - name: s
    concurrency: ` + concurrency + `
    steps: [{name: a, grace_period: 1s, run: "` + script + `"}]
    finally: [{name: tidy, run: echo tidied}]
  - {name: next, needs: [s], steps: [{name: n, run: echo n}]}
`
}

// waitGroup waits until a group of the default project is as it should be.
func waitGroup(t *testing.T, env *e2e.Env, name, what string, met func(workflows.GroupState) bool) workflows.GroupState {
	t.Helper()
	var state workflows.GroupState
	require.Eventually(t, func() bool {
		state = groupState(t, env, run.DefaultTenant, run.DefaultProject, name)
		return met(state)
	}, e2e.Patience, 50*time.Millisecond, what)
	return state
}

func waitEmpty(t *testing.T, env *e2e.Env, name string) {
	t.Helper()
	waitGroup(t, env, name, "nobody holds or waits", func(s workflows.GroupState) bool {
		return len(s.Holders) == 0 && s.Waiting == 0
	})
}

// TestWaiterLeavesAtOnce is argoproj/argo-workflows#10733: a run that waits for
// its group is cancelled; it ends without a finally step, and the holder goes on.
func TestWaiterLeavesAtOnce(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	group := uuid.NewString()
	holder := env.Run(t, inGroup("{group: "+group+"}", "echo ready; sleep "+seconds(321)))
	holder.WaitLog("s/a", "ready")
	waiter := env.Run(t, inGroup("{group: "+group+"}", "echo never"))
	doc := waiter.WaitFor("it says who is before it", func(d *run.Document) bool {
		return d.WaitingFor != nil && d.WaitingFor.Position == 1
	})
	require.Equal(t, "group", doc.WaitingFor.Kind)
	require.Equal(t, group, doc.WaitingFor.Name)
	require.Equal(t, holder.ID, doc.WaitingFor.Holder)
	require.NotNil(t, doc.WaitingFor.Since)
	require.Contains(t, env.CLI(t, "status", waiter.ID).Stdout, "place 1")

	asked := time.Now()
	got := env.CLI(t, "cancel", waiter.ID, "--wait", "--reason", "changed my mind")
	t.Logf("the waiter had left after %s", time.Since(asked))
	require.Equal(t, 0, got.Code, got.Stderr)
	doc = waiter.Wait()
	require.Equal(t, run.Cancelled, doc.Status)
	require.Equal(t, "changed my mind", doc.Cause.Message)
	require.Equal(t, run.Skipped, e2e.Nodes(doc)["s"].Status)
	require.NotContains(t, e2e.Nodes(doc), "finally/report")
	require.Equal(t, run.Running, e2e.Nodes(holder.Document())["s/a"].Status)
	holder.Cancel("")
	holder.Wait()
	waitEmpty(t, env, group)
}

func TestStageWaiterLeavesAtOnce(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	group := uuid.NewString()
	holder := env.Run(t, stageInGroup("{group: "+group+"}", "echo ready; sleep "+seconds(322)))
	holder.WaitLog("s/a", "ready")
	waiter := env.Run(t, stageInGroup("{group: "+group+"}", "echo never"))
	doc := waiter.WaitFor("its stage says who is before it", func(d *run.Document) bool {
		return len(d.Stages) > 0 && d.Stages[0].WaitingFor != nil && d.Stages[0].WaitingFor.Position == 1
	})
	require.Equal(t, holder.ID+" s", doc.Stages[0].WaitingFor.Holder)
	waiter.Cancel("")
	doc = waiter.Wait()
	require.Equal(t, run.Cancelled, doc.Status)
	nodes := e2e.Nodes(doc)
	require.Equal(t, run.Cancelled, nodes["s"].Status)
	require.Equal(t, run.Skipped, nodes["s/a"].Status)
	require.Equal(t, run.Skipped, nodes["s/tidy"].Status)
	require.Equal(t, run.Running, e2e.Nodes(holder.Document())["s/a"].Status)
	holder.Cancel("")
	holder.Wait()
	waitEmpty(t, env, group)
}

// TestFullGroupRefuses: with reject the run fails with the name of the holder,
// and the command has an exit code of its own.
func TestFullGroupRefuses(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	group := uuid.NewString()
	holder := env.Run(t, inGroup("{group: "+group+"}", "echo ready; sleep "+seconds(323)))
	holder.WaitLog("s/a", "ready")
	file := filepath.Join(t.TempDir(), "refused.yaml")
	require.NoError(t, os.WriteFile(file, []byte(inGroup("{group: "+group+", on_full: reject}", "echo never")), 0o600))
	doc, got := env.RunFile(t, file)
	require.Equal(t, 3, got.Code, got.Stderr)
	require.Equal(t, run.Failed, doc.Status)
	require.Equal(t, run.TriggerGroupFull, doc.Cause.Trigger)
	require.Contains(t, doc.Cause.Message, holder.ID)
	require.NotContains(t, e2e.Nodes(doc), "finally/report")
	// Another project has a group of its own by the same name.
	doc, got = env.RunFile(t, file, "--project", "other")
	require.Equal(t, 0, got.Code, got.Stderr)
	require.Equal(t, run.Succeeded, doc.Status)
	holder.Cancel("")
	holder.Wait()
}

// TestReplacedRunNeverTriesAgain is hatchet-dev/hatchet#4900: a run whose step
// waits for its next attempt is replaced; that attempt never starts.
func TestReplacedRunNeverTriesAgain(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	group := uuid.NewString()
	tries := filepath.Join(t.TempDir(), "tries")
	first := env.Run(t, `
version: 1
name: retrying
concurrency: {group: `+group+`, on_full: cancel_running}
stages:
  - name: s
    steps:
      - name: a
        run: "echo try >> `+tries+`; exit 1"
        retry: {max_attempts: 5, initial_interval: 5s}
`)
	first.WaitFor("it waits for its second attempt", func(d *run.Document) bool {
		return len(d.Stages) == 1 && len(d.Stages[0].Steps) == 1 &&
			d.Stages[0].Steps[0].WaitingFor != nil && d.Stages[0].Steps[0].WaitingFor.Kind == "retry"
	})
	before, err := os.ReadFile(tries)
	require.NoError(t, err)
	second := env.Run(t, inGroup("{group: "+group+", on_full: cancel_running}", "wc -l < "+tries))
	doc := first.Wait()
	require.Equal(t, run.Cancelled, doc.Status)
	require.Equal(t, run.TriggerSuperseded, doc.Cause.Trigger)
	require.Equal(t, second.ID, doc.Cause.By)
	require.Equal(t, run.Succeeded, second.Wait().Status)
	after, err := os.ReadFile(tries)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	waitEmpty(t, env, group)
}

// TestVanishedChildGivesItsSlotBack is gitlab-org/gitlab#577601: the workflow of
// a stage that holds a slot is deleted.
func TestVanishedChildGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	group := uuid.NewString()
	mark := seconds(324)
	holder := env.Run(t, stageInGroup("{group: "+group+"}", "echo ready; sleep "+mark))
	holder.WaitLog("s/a", "ready")
	child := holder.Document().Stages[0]
	waiter := env.Run(t, stageInGroup("{group: "+group+"}", "echo mine"))
	waitGroup(t, env, group, "one waits", func(s workflows.GroupState) bool { return s.Waiting == 1 })
	_, err := env.Temporal.Client().WorkflowService().DeleteWorkflowExecution(t.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
		Namespace:         env.Temporal.Namespace(),
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: child.WorkflowID, RunId: child.RunID},
	})
	require.NoError(t, err)
	state := waitGroup(t, env, group, "the slot is taken back", func(s workflows.GroupState) bool { return len(s.TakenBack) == 1 })
	require.Equal(t, holder.ID+" s", activities.SlotOwnerName(state.TakenBack[0].Owner))
	requireGone(t, mark)
	require.Equal(t, run.Succeeded, waiter.Wait().Status)
	require.True(t, holder.Wait().Status.Terminal(), "the parent ends, too") // tektoncd/pipeline#7556
}

// TestClosedRunHoldsUntilItsStagesHaveEnded: a terminated run's stages still
// unwind; its slot is not free before they have.
func TestClosedRunHoldsUntilItsStagesHaveEnded(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	group := uuid.NewString()
	ended := filepath.Join(t.TempDir(), "ended")
	holder := env.Run(t, `
version: 1
name: unwinding
concurrency: {group: `+group+`}
stages:
  - name: s
    steps: [{name: a, grace_period: 1s, run: "echo ready; sleep `+seconds(325)+`"}]
    finally: [{name: tidy, run: "sleep 20; touch `+ended+`"}]
`)
	holder.WaitLog("s/a", "ready")
	waiter := env.Run(t, inGroup("{group: "+group+"}", "test -e "+ended))
	waitGroup(t, env, group, "one waits", func(s workflows.GroupState) bool { return s.Waiting == 1 })
	require.NoError(t, env.Temporal.Client().TerminateWorkflow(t.Context(), holder.ID, holder.RunID, "enough"))
	require.Equal(t, run.Succeeded, waiter.Wait().Status)
}

// TestKilledWorkerGivesItsSlotBack is kestra-io/kestra#14356: the worker that
// runs a holder is killed.
func TestKilledWorkerGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	group := uuid.NewString()
	mark := seconds(326)
	w := env.StartWorker(t, t.TempDir(), "--labels", "holds")
	holder := env.Run(t, on("holds", `
    concurrency: {group: `+group+`}
    steps: [{name: a, grace_period: 1s, run: "echo ready; sleep `+mark+`"}]
`))
	holder.WaitLog("s/a", "ready")
	waiter := env.Run(t, stageInGroup("{group: "+group+"}", "echo mine"))
	waitGroup(t, env, group, "one waits", func(s workflows.GroupState) bool { return s.Waiting == 1 })
	w.Kill()
	require.Equal(t, run.Succeeded, waiter.Wait().Status)
	requireGone(t, mark)
	require.Equal(t, run.TriggerWorkerLost, holder.Wait().Cause.Trigger)
	waitEmpty(t, env, group)
}
