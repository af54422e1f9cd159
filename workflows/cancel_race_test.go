package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/workflows"
)

// TestCancelAtAnyMoment holds what a cancel does at the moments at which it is
// easily lost, or does too much.
func TestCancelAtAnyMoment(t *testing.T) {
	t.Parallel()

	// tidied is a stage of one step with a finally, in a pipeline with one.
	tidied := func(t *testing.T, edit ...func(*spec.Step)) *bench {
		t.Helper()
		p := plan(stage("s", []spec.Step{step("a", edit...)}, func(s *spec.Stage) { s.Finally = []spec.Step{step("tidy")} }))
		p.Finally = []spec.Step{step("report")}
		return setup(t, p)
	}
	// slow lets an activity take so long.
	slow := func(b *bench, name string, d time.Duration) {
		b.OnActivity("RunStep", anything, stepNamed(name)).After(d).Return(b.world.RunStep)
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
	}
	cancelAt := func(b *bench, d time.Duration) { b.RegisterDelayedCallback(b.CancelWorkflow, d) }
	requireCancelled := func(t *testing.T, doc *run.Document) {
		t.Helper()
		require.Equal(t, run.Cancelled, doc.Status)
		require.Equal(t, &run.Cause{Trigger: run.TriggerUser, By: "ada@box", Message: "wrong tag"}, doc.Cause)
	}

	t.Run("Twice", func(t *testing.T) {
		t.Parallel()
		b := tidied(t)
		slow(b, "a", 10*time.Hour)
		cancelAt(b, time.Minute)
		cancelAt(b, time.Minute)
		cancelAt(b, time.Minute+time.Second)
		requireCancelled(t, b.run(t))
		for _, once := range []string{"end s/a", "run s/tidy", "release s", "run finally/report", "release finally"} {
			require.Len(t, filter(b.world.all(), once), 1, once)
		}
	})

	t.Run("WhileItWaitsForAHost", func(t *testing.T) {
		t.Parallel()
		b := tidied(t)
		b.OnActivity("Bind", anything, anything).After(10*time.Hour).Return(nil, nil)
		cancelAt(b, time.Minute)
		requireCancelled(t, b.run(t))
		require.NotContains(t, b.world.all(), "run s/a")
		require.NotContains(t, b.world.all(), "run s/tidy", "it has no host")
	})

	t.Run("WhileTheWorkspaceIsFilled", func(t *testing.T) {
		t.Parallel()
		b := tidied(t)
		b.OnActivity("Prepare", anything, anything).After(10 * time.Hour).Return(nil).Once()
		b.OnActivity("Prepare", anything, anything).Return(nil)
		cancelAt(b, time.Minute)
		requireCancelled(t, b.run(t))
		require.NotContains(t, b.world.all(), "run s/a")
		require.Contains(t, b.world.all(), "release s", "the host was taken")
	})

	t.Run("InTheBackOffOfARetry", func(t *testing.T) {
		t.Parallel()
		b := tidied(t, func(s *spec.Step) {
			s.Retry = spec.Retry{MaxAttempts: 5, InitialInterval: time.Hour, MaxInterval: time.Hour, Backoff: 1}
		})
		b.world.steps["a"] = exits(1, true)
		cancelAt(b, 90*time.Minute) // after the second attempt
		began := b.Now()
		requireCancelled(t, b.run(t))
		require.Less(t, b.Now().Sub(began), 2*time.Hour, "it does not wait for the next attempt")
		require.Len(t, filter(b.world.all(), "run s/a"), 2)
		require.Contains(t, b.world.all(), "run s/tidy")
	})

	t.Run("WhileTheStageIsReleased", func(t *testing.T) {
		t.Parallel()
		b := tidied(t)
		released := false
		b.OnActivity("Release", anything, anything).After(time.Minute).Return(func(context.Context, activities.Owner) error {
			released = true
			return nil
		})
		cancelAt(b, 30*time.Second)
		requireCancelled(t, b.run(t))
		require.True(t, released, "a release is not cut short")
	})

	t.Run("InTheFinallyOfAStage", func(t *testing.T) {
		t.Parallel()
		b := tidied(t)
		slow(b, "tidy", 3*time.Minute)
		cancelAt(b, time.Minute)
		doc := b.run(t)
		requireCancelled(t, doc)
		require.Subset(t, b.world.all(), []string{"run s/tidy", "release s", "run finally/report"})
		require.NotContains(t, b.world.all(), "end s/tidy")
	})

	t.Run("InTheFinallyOfThePipeline", func(t *testing.T) {
		t.Parallel()
		b := tidied(t)
		slow(b, "report", 3*time.Minute)
		cancelAt(b, time.Minute)
		doc := b.run(t)
		requireCancelled(t, doc)
		require.Equal(t, map[string]run.Status{"s": run.Succeeded, "finally": run.Succeeded}, states(doc))
		require.NotContains(t, b.world.all(), "end finally/report")
	})

	t.Run("InTheFinallyOfAStageThatFailed", func(t *testing.T) {
		t.Parallel()
		b := tidied(t)
		slow(b, "tidy", 3*time.Minute)
		b.world.steps["a"] = exits(1, false)
		b.OnActivity("RunStep", anything, stepNamed("a")).Return(b.world.RunStep)
		cancelAt(b, time.Minute)
		doc := b.run(t)
		requireCancelled(t, doc)
		require.Equal(t, run.Failed, doc.Stages[0].Status, "what has failed stays so")
		require.Contains(t, b.world.all(), "run s/tidy")
	})

	t.Run("InTheTimeThatItsOwnTimeoutGaveFinally", func(t *testing.T) {
		t.Parallel()
		b := tidied(t)
		b.world.plan.Timeout = time.Minute
		b.OnActivity("RunStep", anything, stepNamed("a")).After(10*time.Hour).Return(&activities.StepResult{}, nil)
		b.OnActivity("RunStep", anything, stepNamed("tidy")).After(4 * time.Minute).Return(b.world.RunStep)
		b.OnActivity("RunStep", anything, stepNamed("report")).After(4 * time.Minute).Return(b.world.RunStep)
		cancelAt(b, 2*time.Minute)
		doc := b.run(t)
		require.Equal(t, run.TimedOut, doc.Status, "the first cause in time decides")
		require.Subset(t, b.world.all(), []string{"run s/tidy", "run finally/report"})
		require.NotContains(t, b.world.all(), "end s/tidy")
	})

	t.Run("WithNowInFinally", func(t *testing.T) {
		t.Parallel()
		b := tidied(t)
		b.OnActivity("RunStep", anything, stepNamed("tidy")).After(10*time.Hour).Return(&activities.StepResult{}, nil)
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		cancelAt(b, time.Minute)
		b.RegisterDelayedCallback(func() { b.SignalWorkflow(workflows.NowSignal, nil) }, time.Minute+time.Second)
		requireCancelled(t, b.run(t))
		require.Subset(t, b.world.all(), []string{"end s/tidy", "release s"})
		require.NotContains(t, b.world.all(), "run finally/report")
	})

	t.Run("OfAStepThatHasJustEnded", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		slow(b, "later", time.Hour)
		var rejected error
		b.RegisterDelayedCallback(func() {
			b.UpdateWorkflow(workflows.CancelNodeUpdate, "u", &updates{rejected: &rejected}, workflows.CancelNode{Node: "s/a"})
		}, time.Minute)
		stageRun(t, b, stage("s", []spec.Step{step("a"), step("later")}))
		require.ErrorContains(t, rejected, "step s/a has already ended: succeeded")
		require.NoError(t, b.GetWorkflowError(), "and nothing else is disturbed")
	})

	t.Run("OfAStepThatHasNotBegun", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		slow(b, "a", time.Hour)
		var rejected error
		b.RegisterDelayedCallback(func() {
			b.UpdateWorkflow(workflows.CancelNodeUpdate, "u", &updates{rejected: &rejected}, workflows.CancelNode{Node: "s/later"})
		}, time.Minute)
		stageRun(t, b, stage("s", []spec.Step{step("a"), step("later")}))
		require.NoError(t, rejected)
		require.True(t, temporal.IsCanceledError(b.GetWorkflowError()))
		require.NotContains(t, b.world.all(), "run s/later")
	})
}
