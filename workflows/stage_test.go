package workflows_test

import (
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

// notPickedUp is the error of an activity that no worker took in time, after so
// many attempts.
func notPickedUp(attempts int) error {
	last := temporal.NewApplicationErrorWithOptions("exit code 1", string(run.TriggerExitCode),
		temporal.ApplicationErrorOptions{Details: []any{activities.StepResult{Attempt: attempts}}})
	return temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, last)
}

func TestStageHost(t *testing.T) {
	t.Parallel()

	t.Run("GivesABusyHostTheStepAgainWithTheAttemptsMade", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a", func(s *spec.Step) { s.Retry.MaxAttempts = 5 })})))
		b.OnActivity("RunStep", anything, anything).Return(nil, notPickedUp(3)).Once()
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		doc := b.run(t)
		require.Equal(t, run.Succeeded, doc.Status)
		require.Equal(t, 3, b.world.input["s/a"].Attempts)
		require.Contains(t, b.world.all(), "alive?")
	})

	t.Run("FailsWithWorkerLostAndRunsFinallyElsewhere", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a"), step("b")}, func(s *spec.Stage) {
			s.Finally = []spec.Step{step("tidy")}
		})))
		b.world.alive = func() bool { return false }
		b.OnActivity("RunStep", anything, stepNamed("a")).Return(nil, notPickedUp(0))
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, run.TriggerWorkerLost, doc.Cause.Trigger)
		require.Len(t, filter(b.world.all(), "bind s"), 2)
		require.Equal(t, "1", b.world.input["s/tidy"].Vars["BELAY_WORKER_LOST"])
		require.NotContains(t, b.world.all(), "run s/b")
	})

	t.Run("WritesDownWhichHostHasItsWorkspaceStill", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a")})))
		b.world.alive = func() bool { return false }
		b.OnActivity("RunStep", anything, anything).Return(nil, notPickedUp(0))
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, run.ResourceLeaked, doc.Stages[0].Resources[0].State)
		require.Len(t, b.world.marked, 1)
		e := b.world.marked[0]
		require.Equal(t, "s|0|workspace|h1|h1", e.Key())
		require.Equal(t, "belay-host/h1/b1", e.Queue)
		require.Contains(t, e.Error, "does not answer")
	})

	t.Run("WritesNothingDownOfAWorkspaceThatIsGivenBack", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a")})))
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Empty(t, b.world.marked)
	})

	// lost is a stage with a finally step that loses its host.
	lost := func(t *testing.T) *bench {
		t.Helper()
		b := setup(t, plan(stage("s", []spec.Step{step("a")}, func(s *spec.Stage) {
			s.Finally = []spec.Step{step("tidy")}
		})))
		b.OnActivity("RunStep", anything, stepNamed("a")).Return(nil, notPickedUp(0))
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		return b
	}

	t.Run("LooksForAnotherHostOnlyAmongThoseThatLive", func(t *testing.T) {
		t.Parallel()
		b := lost(t)
		b.world.alive = func() bool { return false }
		b.OnActivity("Bind", anything, anything).Return(b.world.Bind).Once()
		b.OnActivity("Bind", anything, anything).Return(nil, notPickedUp(0)).Once()
		began := b.Now()
		doc := b.run(t)
		require.Less(t, b.Now().Sub(began), 2*time.Minute)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, run.TriggerWorkerLost, doc.Cause.Trigger)
		require.Equal(t, []string{
			"the finally steps did not run: their host was lost, and no other could be had: " +
				"no live host takes stages from belay-steps",
		}, doc.Stages[0].Notes)
		require.NotContains(t, b.world.all(), "run s/tidy")
	})

	t.Run("WaitsForAnotherHostThatIsBusy", func(t *testing.T) {
		t.Parallel()
		b, looks := lost(t), 0
		b.world.alive = func() bool { looks++; return looks > 1 } // the host is gone, others live
		b.OnActivity("Bind", anything, anything).Return(b.world.Bind).Once()
		b.OnActivity("Bind", anything, anything).Return(nil, notPickedUp(0)).Twice()
		b.OnActivity("Bind", anything, anything).Return(b.world.Bind)
		require.Equal(t, run.Failed, b.run(t).Status)
		require.Contains(t, b.world.all(), "run s/tidy")
		require.Equal(t, 3, looks)
	})

	t.Run("SaysThatTheTimeForFinallyWasOverBeforeAnotherHostCame", func(t *testing.T) {
		t.Parallel()
		b := lost(t)
		b.world.alive = func() bool { return false }
		b.OnActivity("Bind", anything, anything).Return(b.world.Bind).Once()
		b.OnActivity("Bind", anything, anything).After(time.Hour).Return(nil, notPickedUp(0))
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status, doc.Cause)
		require.Equal(t, []string{
			"the finally steps did not run: their host was lost, and no other could be had: it took more than 6m0s",
		}, doc.Stages[0].Notes)
	})

	t.Run("StartsTheClockOfFinallyWhenAnotherHostIsThere", func(t *testing.T) {
		t.Parallel()
		b, looks := lost(t), 0
		b.world.plan.Stages[0].FinallyTimeout = 5 * time.Second
		b.world.alive = func() bool { looks++; return looks > 1 }
		b.OnActivity("Bind", anything, anything).Return(b.world.Bind).Once()
		b.OnActivity("Bind", anything, anything).After(30 * time.Second).Return(b.world.Bind)
		doc := b.run(t)
		require.Equal(t, run.TriggerWorkerLost, doc.Cause.Trigger)
		require.Contains(t, b.world.all(), "run s/tidy")
	})

	t.Run("BeginsAgainElsewhereWhereTheFileSaysSo", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a"), step("b")}, func(s *spec.Stage) { s.OnWorkerLost = spec.LostRerun })))
		b.OnActivity("RunStep", anything, stepNamed("b")).
			Return(nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil)).Once()
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		doc := b.run(t)
		require.Equal(t, run.Succeeded, doc.Status)
		require.Len(t, filter(b.world.all(), "run s/a"), 2)
		require.Len(t, filter(b.world.all(), "bind s"), 2)
		require.NotEmpty(t, doc.Stages[0].Notes)
		for _, r := range doc.Stages[0].Resources {
			require.Equal(t, run.ResourceReleased, r.State, "it came back to the same host: %v", r)
		}
	})

	// A stage that would begin again, and does not: its finally steps run.
	t.Run("RunsFinallyWhereItWasBegunAgainOftenEnough", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a")}, func(s *spec.Stage) {
			s.OnWorkerLost, s.Finally = spec.LostRerun, []spec.Step{step("tidy")}
		})))
		b.OnActivity("RunStep", anything, stepNamed("a")).Return(nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil))
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, run.TriggerWorkerLost, doc.Cause.Trigger)
		require.Len(t, filter(b.world.all(), "run s/tidy"), 1)
	})

	t.Run("RunsFinallyWhereItWasStoppedBeforeItCouldBeginAgain", func(t *testing.T) {
		t.Parallel()
		both := group("both", func(*spec.Step) {}, step("a"), step("b"))
		b := setup(t, plan(stage("s", []spec.Step{both}, func(s *spec.Stage) {
			s.OnWorkerLost, s.Finally, s.Timeout = spec.LostRerun, []spec.Step{step("tidy")}, time.Minute
		})))
		b.OnActivity("RunStep", anything, stepNamed("a")).Return(nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil))
		b.OnActivity("RunStep", anything, stepNamed("b")).After(time.Hour).Return(b.world.RunStep)
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		require.Equal(t, run.TimedOut, b.run(t).Status)
		require.Len(t, filter(b.world.all(), "run s/tidy"), 1)
	})

	t.Run("TakesNoHostForLightStepsAlone", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("n", func(s *spec.Step) { s.Run, s.Uses = nil, "noop" })})))
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Empty(t, b.world.all())
	})
}

func TestStageSteps(t *testing.T) {
	t.Parallel()

	t.Run("StopsAGroupAtItsFirstFailureWithFailFast", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{
			group("g", func(s *spec.Step) { s.FailFast = true }, step("bad"), step("slow")), step("after"),
		})))
		b.world.steps["bad"] = exits(2, false)
		b.OnActivity("RunStep", anything, stepNamed("slow")).After(time.Hour).Return(&activities.StepResult{}, nil)
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, "s/bad", doc.Cause.Source)
		require.Contains(t, b.world.all(), "end s/slow")
		require.NotContains(t, b.world.all(), "run s/after")
	})

	t.Run("LetsAGroupEndWithoutFailFast", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{group("g", nil, step("bad"), step("good"))})))
		b.world.steps["bad"] = exits(2, false)
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Contains(t, b.world.all(), "run s/good")
		require.NotContains(t, b.world.all(), "end s/good")
	})

	t.Run("KeepsAtMostAHundredInFlight", func(t *testing.T) {
		t.Parallel()
		members := make([]spec.Step, 0, 200)
		for i := range 200 {
			members = append(members, step("m"+string(rune('a'+i/26))+string(rune('a'+i%26))))
		}
		b := setup(t, plan(stage("s", []spec.Step{group("g", nil, members...)})))
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Len(t, b.world.all(), 202)
		require.LessOrEqual(t, b.world.most, 100)
	})

	t.Run("RunsEveryFinallyStepWhateverFailsAmongThem", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a")}, func(s *spec.Stage) {
			s.Finally = []spec.Step{step("f1"), step("f2")}
		})))
		b.world.steps["f1"] = exits(1, false)
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, "s/f1", doc.Cause.Source)
		require.Contains(t, b.world.all(), "run s/f2")
	})

	t.Run("FailsAStepWhoseExpressionCannotBeEvaluated", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a", func(s *spec.Step) {
			s.Env = map[string]string{"X": "${{ inputs.gone }}"}
		})})))
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, run.TriggerInvalid, doc.Cause.Trigger)
		require.Contains(t, doc.Cause.Message, "env.X")
	})

	t.Run("EndsFinallyStepsAtTheirOwnTimeout", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a")}, func(s *spec.Stage) {
			s.Finally, s.FinallyTimeout = []spec.Step{step("stuck")}, time.Minute
		})))
		b.OnActivity("RunStep", anything, stepNamed("stuck")).After(time.Hour).Return(&activities.StepResult{}, nil)
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		doc := b.run(t)
		require.Equal(t, run.TimedOut, doc.Status)
		require.Contains(t, b.world.all(), "end s/stuck")
		require.Contains(t, b.world.all(), "release s")
	})
}

// stageRun runs one stage by itself, as the pipeline would.
func stageRun(t *testing.T, b *bench, st spec.Stage) {
	t.Helper()
	b.ExecuteWorkflow(workflows.Stage, workflows.StageInput{
		RunKey: "k", ID: "default/default/demo/r/1", Pipeline: "demo", Stage: st, ReleaseTimeout: time.Minute,
	})
	require.True(t, b.IsWorkflowCompleted())
}

func TestCancelNode(t *testing.T) {
	t.Parallel()

	ask := func(b *bench, node string, rejected *error) func() {
		return func() {
			b.UpdateWorkflow(workflows.CancelNodeUpdate, "u", &updates{rejected: rejected}, workflows.CancelNode{
				Node: node, Reason: "stuck", By: "ada@box",
			})
		}
	}

	t.Run("EndsOneStepAndCountsAsItsFailure", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		b.OnActivity("RunStep", anything, stepNamed("slow")).After(time.Hour).Return(&activities.StepResult{}, nil)
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		var rejected error
		b.RegisterDelayedCallback(ask(b, "s/slow", &rejected), time.Minute)
		stageRun(t, b, stage("s", []spec.Step{step("slow"), step("after")}))
		require.NoError(t, rejected)
		require.True(t, temporal.IsCanceledError(b.GetWorkflowError()))
		var doc run.Stage
		var canceled *temporal.CanceledError
		require.ErrorAs(t, b.GetWorkflowError(), &canceled)
		require.NoError(t, canceled.Details(&doc))
		require.Equal(t, run.Cancelled, doc.Status)
		require.Equal(t, &run.Cause{Trigger: run.TriggerUser, Source: "s/slow", Message: "stuck", By: "ada@box"}, doc.Cause)
		require.Equal(t, run.Skipped, doc.Steps[1].Status)
		require.Contains(t, b.world.all(), "end s/slow")
	})

	t.Run("RefusesAStepThatIsNotThere", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		b.OnActivity("RunStep", anything, anything).After(time.Hour).Return(&activities.StepResult{Attempt: 1}, nil)
		var rejected error
		b.RegisterDelayedCallback(ask(b, "s/other", &rejected), time.Minute)
		stageRun(t, b, stage("s", []spec.Step{step("slow")}))
		require.ErrorContains(t, rejected, `no step "s/other"`)
		require.NoError(t, b.GetWorkflowError())
	})
}

// updates notes how an update was answered.
type updates struct{ rejected *error }

func (u *updates) Accept()                 {}
func (u *updates) Reject(err error)        { *u.rejected = err }
func (u *updates) Complete(_ any, _ error) {}
