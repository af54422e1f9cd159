package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/workflows"
)

// keeper stands in for a host that holds something for stages.
type keeper struct {
	b *bench
	// take is what taking comes to, where it is set.
	take func(context.Context, activities.StepInput) (*activities.StepResult, error)

	mu sync.Mutex
	// tokens are those of the activities that keep, in order.
	tokens [][]byte
	took   []activities.StepInput
}

// inOrder is what was asked for, save what goes on beside the rest.
func (k *keeper) inOrder() []string {
	return slices.DeleteFunc(k.b.world.all(), func(what string) bool {
		return strings.HasPrefix(what, "keep ") || strings.HasPrefix(what, "end ")
	})
}

func (k *keeper) TakeResources(ctx context.Context, in activities.StepInput) (*activities.StepResult, error) {
	k.b.world.note(fmt.Sprintf("take %s", in.Node))
	k.mu.Lock()
	k.took = append(k.took, in)
	k.mu.Unlock()
	if k.take != nil {
		return k.take(ctx, in)
	}
	res := &activities.StepResult{Attempt: in.Attempts + 1}
	for _, r := range in.Step.Resources {
		res.Resources = append(res.Resources, run.Resource{Kind: r.Kind, Name: r.Name, State: run.ResourceHeld})
	}
	return res, nil
}

func (k *keeper) KeepResources(ctx context.Context, in activities.KeepInput) error {
	k.b.world.note(fmt.Sprintf("keep %d", in.Number))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens = append(k.tokens, activity.GetInfo(ctx).TaskToken)
	return activity.ErrResultPending
}

func (k *keeper) ReleaseResources(ctx context.Context, in activities.ReleaseInput) (*activities.ReleaseResult, error) {
	k.b.world.note(fmt.Sprintf("give %s on %s", in.Node, activity.GetInfo(ctx).TaskQueue))
	res := &activities.ReleaseResult{}
	if in.Stage {
		for _, e := range in.Declared {
			e.State = run.ResourceReleased
			e.Attempts = 1
			res.Entries = append(res.Entries, e)
		}
	}
	return res, nil
}

// lose ends the last activity that keeps.
func (k *keeper) lose(t *testing.T, err error) {
	t.Helper()
	k.mu.Lock()
	token := k.tokens[len(k.tokens)-1]
	k.mu.Unlock()
	require.NoError(t, k.b.CompleteActivity(token, nil, err))
}

// pending is an activity that goes on for a while, and is cancelled by then.
func (k *keeper) pending(ctx context.Context, t *testing.T, d time.Duration) (*activities.StepResult, error) {
	t.Helper()
	token := activity.GetInfo(ctx).TaskToken
	k.b.RegisterDelayedCallback(func() {
		require.NoError(t, k.b.CompleteActivity(token, nil, temporal.NewCanceledError()))
	}, d)
	return nil, activity.ErrResultPending
}

func finally(steps ...spec.Step) func(*spec.Stage) {
	return func(s *spec.Stage) { s.Finally, s.FinallyTimeout = steps, time.Minute }
}

func holdsAll(s *spec.Stage) {
	s.Env = map[string]string{"REGION": "eu"}
	s.Resources = []spec.Resource{
		{Kind: resource.KindLock, Name: "db-${{ env.REGION }}"},
		{Kind: resource.KindCustom, Name: "window", Acquire: "open", Release: "close", Secrets: []string{"KEY"}},
	}
}

func setupKeeper(t *testing.T, s spec.Stage) (*bench, *keeper) {
	t.Helper()
	b := setup(t, plan(s))
	k := &keeper{b: b}
	b.RegisterActivity(k)
	return b, k
}

// runStage runs the only stage alone to whatever end.
func runStage(t *testing.T, b *bench) *run.Stage {
	t.Helper()
	b.ExecuteWorkflow(workflows.Stage, workflows.StageInput{
		RunKey: "k", RunID: "r", ID: "t/p/n/r/1", Tenant: "t", Project: "p", Stage: b.world.plan.Stages[0], ReleaseTimeout: 2 * time.Minute,
	})
	require.True(t, b.IsWorkflowCompleted())
	return stageEnd(t, b)
}

func lockLost() error {
	return temporal.NewNonRetryableApplicationError("the lock db-eu is another's", string(run.TriggerDependencyUnavailable), nil)
}

func TestResourcesOfStages(t *testing.T) {
	t.Parallel()

	t.Run("AreHeldOverAllStepsAndGivenBackBeforeTheWorkspace", func(t *testing.T) {
		t.Parallel()
		b, k := setupKeeper(t, stage("s", []spec.Step{step("a"), step("b")}, holdsAll, finally(step("tidy"))))
		doc := runStage(t, b)
		require.Equal(t, run.Succeeded, doc.Status)
		require.Equal(t, []string{
			"bind s", "take s", "run s/a", "run s/b", "run s/tidy", "give s on belay-host/h1/b1", "release s",
		}, k.inOrder())
		for _, node := range []string{"s/a", "s/b", "s/tidy"} {
			require.Equal(t, 1, b.world.input[node].Held)
		}
		in := k.took[0]
		require.Equal(t, "db-eu", in.Step.Resources[0].Name)
		require.Equal(t, []string{"KEY"}, in.Step.Secrets)
		require.Equal(t, "t/p/n/r/1", in.Holder.WorkflowID)
		require.NotContains(t, in.Vars, "BELAY_STEP")
		for _, r := range doc.Resources {
			require.Equal(t, run.ResourceReleased, r.State, r)
		}
		require.Len(t, doc.Resources, 3)
	})

	t.Run("NeedAHostEvenWhereNoStepDoes", func(t *testing.T) {
		t.Parallel()
		light := spec.Step{Name: "n", Uses: "noop", Timeout: time.Minute, OnFailure: abort, Retry: spec.Retry{MaxAttempts: 1}}
		b, k := setupKeeper(t, stage("s", []spec.Step{light}, holdsAll))
		require.Equal(t, run.Succeeded, runStage(t, b).Status)
		require.Equal(t, []string{"bind s", "take s", "give s on belay-host/h1/b1", "release s"}, k.inOrder())
	})

	t.Run("ThatCannotBeHadFailTheStageOfWhichNothingRuns", func(t *testing.T) {
		t.Parallel()
		b, k := setupKeeper(t, stage("s", []spec.Step{step("a")}, holdsAll, finally(step("tidy"))))
		k.take = func(context.Context, activities.StepInput) (*activities.StepResult, error) {
			return nil, temporal.NewNonRetryableApplicationError("acquiring custom window: exit 1", string(run.TriggerExitCode), nil)
		}
		doc := runStage(t, b)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, &run.Cause{Trigger: run.TriggerExitCode, Source: "s", Message: "acquiring custom window: exit 1"}, doc.Cause)
		require.Equal(t, []string{"bind s", "take s", "give s on belay-host/h1/b1", "release s"}, k.inOrder())
		for _, st := range doc.Steps {
			require.Equal(t, run.Skipped, st.Status)
		}
	})

	t.Run("ThatAreLostEndTheStepsAndAreTakenAgainForThoseThatFollow", func(t *testing.T) {
		t.Parallel()
		b, k := setupKeeper(t, stage("s", []spec.Step{step("a"), step("b")}, holdsAll, finally(step("tidy"))))
		b.world.steps["a"] = func(ctx context.Context, _ activities.StepInput) (*activities.StepResult, error) {
			k.b.RegisterDelayedCallback(func() { k.lose(t, lockLost()) }, time.Millisecond)
			return k.pending(ctx, t, 2*time.Second)
		}
		doc := runStage(t, b)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, &run.Cause{Trigger: run.TriggerDependencyUnavailable, Source: "s", Message: "the lock db-eu is another's"}, doc.Cause)
		require.Equal(t, []string{
			"bind s", "take s", "run s/a", "give s on belay-host/h1/b1", "take s", "run s/tidy",
			"give s on belay-host/h1/b1", "release s",
		}, k.inOrder())
		require.Contains(t, b.world.all(), "end s/a")
		require.Equal(t, 2, b.world.input["s/tidy"].Held)
		require.Equal(t, run.Cancelled, doc.Steps[0].Status)
		require.Equal(t, doc.Cause, doc.Steps[0].Cause)
		require.Equal(t, run.Skipped, doc.Steps[1].Status)
	})

	t.Run("AreTakenAgainWhereAStageBeginsAgain", func(t *testing.T) {
		t.Parallel()
		b, k := setupKeeper(t, stage("s", []spec.Step{step("a")}, holdsAll, func(s *spec.Stage) { s.OnWorkerLost = spec.LostRerun }))
		ran := 0
		b.world.steps["a"] = func(ctx context.Context, _ activities.StepInput) (*activities.StepResult, error) {
			if ran++; ran > 1 {
				return &activities.StepResult{Attempt: 1}, nil
			}
			gone := temporal.NewNonRetryableApplicationError("gone", string(run.TriggerWorkerLost), nil)
			k.b.RegisterDelayedCallback(func() { k.lose(t, gone) }, time.Millisecond)
			return k.pending(ctx, t, 2*time.Second)
		}
		b.world.alive = func() bool { return false }
		doc := runStage(t, b)
		require.Equal(t, run.Succeeded, doc.Status, doc.Notes)
		require.Equal(t, []string{
			"bind s", "take s", "run s/a", "alive?", "give s on belay-light", "bind s", "take s", "run s/a",
			"give s on belay-host/h1/b1", "release s",
		}, k.inOrder())
		require.Equal(t, 1, k.took[1].Attempts, "its holders have other names")
	})

	t.Run("WhoseWorkerIsLostAsTheyAreTakenAreTakenOnAnotherHost", func(t *testing.T) {
		t.Parallel()
		b, k := setupKeeper(t, stage("s", []spec.Step{step("a")}, holdsAll, func(s *spec.Stage) { s.OnWorkerLost = spec.LostRerun }))
		k.take = func(context.Context, activities.StepInput) (*activities.StepResult, error) {
			k.take = nil
			return nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil)
		}
		b.world.alive = func() bool { return false }
		doc := runStage(t, b)
		require.Equal(t, run.Succeeded, doc.Status, doc.Notes)
		require.Equal(t, []string{
			"bind s", "take s", "alive?", "give s on belay-light", "bind s", "take s", "run s/a", "give s on belay-host/h1/b1", "release s",
		}, k.inOrder())
	})

	t.Run("AreNotTakenAnyMoreByAStageThatIsCancelled", func(t *testing.T) {
		t.Parallel()
		b, k := setupKeeper(t, stage("s", []spec.Step{step("a")}, holdsAll, finally(step("tidy"))))
		k.take = func(ctx context.Context, _ activities.StepInput) (*activities.StepResult, error) {
			k.b.RegisterDelayedCallback(func() { k.b.CancelWorkflow() }, time.Second)
			return k.pending(ctx, t, 2*time.Second)
		}
		doc := runStage(t, b)
		require.Equal(t, run.Cancelled, doc.Status)
		require.Contains(t, b.world.all(), "end s", "its host hears of it at once")
		require.NotContains(t, b.world.all(), "run s/tidy", "nothing ran that it could tidy up")
		require.Contains(t, b.world.all(), "give s on belay-host/h1/b1")
	})

	t.Run("ThatNobodyCanGiveBackLeak", func(t *testing.T) {
		t.Parallel()
		b, _ := setupKeeper(t, stage("s", []spec.Step{step("a")}, holdsAll))
		b.OnActivity("ReleaseResources", anything, anything).Return(nil, notPickedUp(0))
		doc := runStage(t, b)
		require.Equal(t, run.Succeeded, doc.Status)
		for _, r := range doc.Resources {
			require.Equal(t, r.Kind != resource.KindWorkspace, r.State == run.ResourceLeaked, r)
		}
	})

	t.Run("AreNotHeldByAStepTooWhateverItsNameComesTo", func(t *testing.T) {
		t.Parallel()
		b, _ := setupKeeper(t, stage("s", []spec.Step{step("a", holds(spec.Resource{Kind: resource.KindLock, Name: "db-${{ env.REGION }}"}))}, holdsAll))
		doc := runStage(t, b)
		require.Equal(t, run.Failed, doc.Status)
		require.Contains(t, doc.Cause.Message, "the stage holds the lock db-eu over all its steps")
	})

	t.Run("GoThroughALossOfTheirHost", func(t *testing.T) {
		t.Parallel()
		b, k := setupKeeper(t, stage("s", []spec.Step{step("a")}, holdsAll, finally(step("tidy"))))
		b.world.steps["a"] = func(context.Context, activities.StepInput) (*activities.StepResult, error) {
			return nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil)
		}
		b.world.alive = func() bool { return false }
		doc := runStage(t, b)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, run.TriggerWorkerLost, doc.Cause.Trigger)
		require.Equal(t, []string{
			"bind s", "take s", "run s/a", "alive?", "give s on belay-light", "bind s", "take s", "run s/tidy",
			"give s on belay-host/h1/b1", "release s",
		}, k.inOrder())
	})
}

// stageEnd is the document of a stage that has ended, wherever that is.
func stageEnd(t *testing.T, b *bench) *run.Stage {
	t.Helper()
	var doc run.Stage
	var app *temporal.ApplicationError
	var canceled *temporal.CanceledError
	switch err := b.GetWorkflowError(); {
	case err == nil:
		require.NoError(t, b.GetWorkflowResult(&doc))
	case errors.As(err, &app):
		require.NoError(t, app.Details(&doc))
	case errors.As(err, &canceled):
		require.NoError(t, canceled.Details(&doc))
	default:
		require.NoError(t, err)
	}
	return &doc
}
