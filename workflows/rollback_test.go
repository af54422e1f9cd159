package workflows_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/workflows"
)

// undoes is a stage with a rollback of two steps and a finally.
func undoes(steps []spec.Step, edit ...func(*spec.Stage)) *spec.Plan {
	return plan(stage("s", steps, append(edit, func(s *spec.Stage) {
		s.Rollback, s.Finally = []spec.Step{step("undo"), step("undo-more")}, []spec.Step{step("tidy")}
	})...))
}

func failing(a spec.OnFailure) func(*spec.Step) { return func(s *spec.Step) { s.OnFailure = a } }

func TestRollback(t *testing.T) {
	t.Parallel()

	// ends runs the plan and requires that it is rolled back, or not, before
	// finally and release.
	ends := func(t *testing.T, b *bench, rolledBack bool) *run.Document {
		t.Helper()
		doc := b.run(t)
		all := slices.DeleteFunc(b.world.all(), func(s string) bool {
			return s == "cause" || strings.HasPrefix(s, "end ") || strings.HasPrefix(s, "tell ")
		})
		if rolledBack {
			require.Equal(t, []string{"run s/undo", "run s/undo-more", "run s/tidy", "release s"}, all[len(all)-4:])
		} else {
			require.NotContains(t, all, "run s/undo")
			require.Equal(t, []string{"run s/tidy", "release s"}, all[len(all)-2:])
		}
		return doc
	}

	t.Run("RunsWhereTheStageSaysSoWhateverFailed", func(t *testing.T) {
		t.Parallel()
		b := setup(t, undoes([]spec.Step{step("bad"), step("after")}, func(s *spec.Stage) { s.OnFailure = on(spec.Rollback) }))
		b.world.steps["bad"] = exits(1, false)
		doc := ends(t, b, true)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, "s/bad", doc.Cause.Source)
		require.NotContains(t, b.world.all(), "run s/after")
	})

	t.Run("RunsWhereTheStepOrItsGroupSaysSo", func(t *testing.T) {
		t.Parallel()
		for _, steps := range [][]spec.Step{
			{step("bad", failing(on(spec.Rollback)))},
			{group("g", failing(on(spec.Rollback)), step("bad"), step("good"))},
			{group("g", nil, step("bad", failing(on(spec.Rollback))), step("good"))},
		} {
			b := setup(t, undoes(steps))
			b.world.steps["bad"] = exits(1, false)
			require.Equal(t, run.Failed, ends(t, b, true).Status)
		}
	})

	t.Run("RunsForItsClassOfTriggerAlone", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			on   spec.OnFailure
			want bool
		}{
			{spec.OnFailure{Error: spec.Rollback, Timeout: spec.Abort, Lost: spec.Abort, Default: spec.Abort}, true},
			{spec.OnFailure{Error: spec.Abort, Timeout: spec.Rollback, Lost: spec.Rollback, Default: spec.Rollback}, false},
		} {
			b := setup(t, undoes([]spec.Step{step("bad")}, func(s *spec.Stage) { s.OnFailure = c.on }))
			b.world.steps["bad"] = exits(1, false)
			ends(t, b, c.want)
		}
	})

	t.Run("DoesNotRunWhereNothingFailedThatCounts", func(t *testing.T) {
		t.Parallel()
		b := setup(t, undoes([]spec.Step{step("bad", failing(on(spec.Ignore)))}, func(s *spec.Stage) { s.OnFailure = on(spec.Rollback) }))
		b.world.steps["bad"] = exits(1, false)
		require.Equal(t, run.Succeeded, ends(t, b, false).Status)
	})

	t.Run("RunsAfterAStepThatWasToContinueWhereTheStageSaysSo", func(t *testing.T) {
		t.Parallel()
		b := setup(t, undoes([]spec.Step{step("bad", failing(on(spec.Continue))), step("after")},
			func(s *spec.Stage) { s.OnFailure = on(spec.Rollback) }))
		b.world.steps["bad"] = exits(1, false)
		ends(t, b, true)
		require.Contains(t, b.world.all(), "run s/after")
	})

	// slow is a stage that rolls back for every reason, and that never ends.
	slow := func(t *testing.T, edit ...func(*spec.Stage)) *bench {
		t.Helper()
		p := undoes([]spec.Step{step("slow")}, append(edit, func(s *spec.Stage) { s.OnFailure = on(spec.Rollback) })...)
		b := setup(t, p)
		b.OnActivity("RunStep", anything, stepNamed("slow")).After(10*time.Hour).Return(&activities.StepResult{}, nil)
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		return b
	}

	t.Run("RunsAtTheStagesOwnTimeout", func(t *testing.T) {
		t.Parallel()
		b := slow(t, func(s *spec.Stage) { s.Timeout = time.Minute })
		doc := ends(t, b, true)
		require.Equal(t, run.TimedOut, doc.Status)
		require.Equal(t, run.TriggerStageTimeout, doc.Cause.Trigger)
	})

	t.Run("DoesNotRunWhenTheRunIsCancelledOrTimesOut", func(t *testing.T) {
		t.Parallel()
		b := slow(t)
		b.RegisterDelayedCallback(b.CancelWorkflow, time.Minute)
		require.Equal(t, run.Cancelled, ends(t, b, false).Status)
		b = slow(t)
		b.world.plan.Timeout = time.Minute
		require.Equal(t, run.TimedOut, ends(t, b, false).Status)
	})

	t.Run("DoesNotRunWhereAnotherStageFailed", func(t *testing.T) {
		t.Parallel()
		b := slow(t)
		b.world.plan.Stages = append(b.world.plan.Stages, stage("other", []spec.Step{step("bad")}))
		b.world.steps["bad"] = exits(1, false)
		doc := b.run(t)
		require.Equal(t, "other/bad", doc.Cause.Source)
		require.NotContains(t, b.world.all(), "run s/undo")
		require.Contains(t, b.world.all(), "run s/tidy")
	})

	t.Run("IsLeftOutWithNow", func(t *testing.T) {
		t.Parallel()
		b := slow(t, func(s *spec.Stage) { s.Timeout = time.Minute })
		b.RegisterDelayedCallback(func() { b.SignalWorkflow(workflows.NowSignal, nil) }, 30*time.Second)
		require.Equal(t, run.TimedOut, b.run(t).Status)
		require.NotContains(t, b.world.all(), "run s/undo")
		require.NotContains(t, b.world.all(), "run s/tidy")
		require.Contains(t, b.world.all(), "release s")
	})

	t.Run("GoesOnWhateverFailsInItAndSaysSo", func(t *testing.T) {
		t.Parallel()
		b := setup(t, undoes([]spec.Step{step("bad")}, func(s *spec.Stage) { s.OnFailure = on(spec.Rollback) }))
		b.world.steps["bad"], b.world.steps["undo"] = exits(3, false), exits(1, false)
		doc := ends(t, b, true)
		require.Equal(t, "s/bad", doc.Cause.Source, "the failure that came first decides")
		require.Contains(t, doc.Stages[0].Notes, "not all is rolled back: s/undo ended failed")
	})

	t.Run("HasTimeOfItsOwnThatASecondCancelDoesNotCut", func(t *testing.T) {
		t.Parallel()
		b := slow(t, func(s *spec.Stage) { s.Timeout, s.FinallyTimeout = time.Minute, 5*time.Minute })
		b.OnActivity("RunStep", anything, stepNamed("undo")).After(3 * time.Minute).Return(b.world.RunStep)
		b.RegisterDelayedCallback(b.CancelWorkflow, 2*time.Minute) // while the rollback runs
		doc := b.run(t)
		require.Contains(t, b.world.all(), "run s/tidy")
		require.Equal(t, run.TimedOut, doc.Stages[0].Status)
	})

	t.Run("EndsAtFinallyTimeoutAndLeavesFinallyItsOwn", func(t *testing.T) {
		t.Parallel()
		b := setup(t, undoes([]spec.Step{step("bad")}, func(s *spec.Stage) {
			s.OnFailure, s.FinallyTimeout = on(spec.Rollback), time.Minute
		}))
		b.world.steps["bad"] = exits(1, false)
		b.OnActivity("RunStep", anything, stepNamed("undo")).After(time.Hour).Return(&activities.StepResult{}, nil)
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Subset(t, b.world.all(), []string{"end s/undo", "run s/tidy", "release s"})
	})

	t.Run("RunsOnAnotherHostWhereItsOwnIsLost", func(t *testing.T) {
		t.Parallel()
		b := setup(t, undoes([]spec.Step{step("lost")}, func(s *spec.Stage) { s.OnFailure = on(spec.Rollback) }))
		b.world.alive = func() bool { return false }
		b.OnActivity("RunStep", anything, stepNamed("lost")).
			Return(nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil)).Once()
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		require.Equal(t, run.Failed, ends(t, b, true).Status)
		require.Equal(t, "1", b.world.input["s/undo"].Vars["BELAY_WORKER_LOST"])
		require.Len(t, filter(b.world.all(), "bind s"), 2, "finally runs where the rollback ran")
	})
}
