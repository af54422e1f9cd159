package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/workflows"
)

func TestPipeline(t *testing.T) {
	t.Parallel()

	t.Run("HandsOutputsFromStepToStepAndFromStageToStage", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(
			stage("build", []spec.Step{
				step("compile", func(s *spec.Step) { s.Outputs = []string{"digest"} }),
				step("sign", func(s *spec.Step) { s.Env = map[string]string{"D": "${{ steps.compile.outputs.digest }}"} }),
			}),
			stage("deploy", []spec.Step{
				step("rollout", func(s *spec.Step) { s.Env = map[string]string{"D": "${{ stages.build.outputs.digest }}"} }),
			}, needs("build"), reads("build")),
		))
		b.world.steps["compile"] = writes(map[string]string{"digest": "sha256:1"})
		doc := b.run(t)
		require.Equal(t, run.Succeeded, doc.Status)
		require.Equal(t, "sha256:1", b.world.input["build/sign"].Env["D"])
		require.Equal(t, "sha256:1", b.world.input["deploy/rollout"].Env["D"])
		require.Equal(t, []string{
			"bind build", "run build/compile", "run build/sign", "release build", "bind deploy", "run deploy/rollout", "release deploy",
		}, b.world.all())
	})

	t.Run("AbortsOnAFailureAndSkipsWhatNeedsIt", func(t *testing.T) {
		t.Parallel()
		p := plan(
			stage("build", []spec.Step{step("compile"), step("after")}),
			stage("deploy", []spec.Step{step("rollout")}, needs("build")),
			stage("page", []spec.Step{step("call")}, needs("build"), reads("build"), func(s *spec.Stage) {
				s.When = &spec.Condition{Expr: `stages.build.status == "failed"`, ReadsStatus: true}
			}),
		)
		p.Finally = []spec.Step{step("report")}
		b := setup(t, p)
		b.world.steps["compile"] = exits(3, false)
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, &run.Cause{Trigger: run.TriggerExitCode, Source: "build/compile", Message: "exit code"}, doc.Cause)
		require.Equal(t, map[string]run.Status{
			"build": run.Failed, "deploy": run.Skipped, "page": run.Succeeded, "finally": run.Succeeded,
		}, states(doc))
		require.Equal(t, run.TriggerDependencyFailed, doc.Stages[1].Cause.Trigger)
		require.Equal(t, "build/compile", doc.Stages[1].Cause.Source)
		require.NotContains(t, b.world.all(), "run build/after")
		require.Contains(t, b.world.all(), "run finally/report")
	})

	t.Run("ContinuesOrIgnoresWhereTheFileSaysSo", func(t *testing.T) {
		t.Parallel()
		for action, want := range map[spec.Action]run.Status{spec.Continue: run.Failed, spec.Ignore: run.Succeeded} {
			b := setup(t, plan(stage("s", []spec.Step{
				step("flaky", func(s *spec.Step) { s.OnFailure = on(action) }), step("after"),
			})))
			b.world.steps["flaky"] = exits(1, false)
			require.Equal(t, want, b.run(t).Status, action)
			require.Contains(t, b.world.all(), "run s/after", action)
		}
	})

	t.Run("TellsAHostWhatBelongsToTheBody", func(t *testing.T) {
		t.Parallel()
		p := plan(stage("s", []spec.Step{step("a")}, func(s *spec.Stage) { s.Finally = []spec.Step{step("tidy")} }))
		p.Finally = []spec.Step{step("report")}
		b := setup(t, p)
		b.run(t)
		require.True(t, b.world.input["s/a"].Body)
		require.False(t, b.world.input["s/tidy"].Body)
		require.False(t, b.world.input["finally/report"].Body)
	})

	t.Run("SkipsAStageByItsOwnWhenWithoutHarmToThoseThatNeedIt", func(t *testing.T) {
		t.Parallel()
		p := plan(
			stage("maybe", []spec.Step{step("a")}, func(s *spec.Stage) { s.When = &spec.Condition{Expr: `inputs.env == "prod"`} }),
			stage("after", []spec.Step{step("b")}, needs("maybe")),
		)
		p.Inputs = map[string]any{"env": "staging"}
		doc := setup(t, p).run(t)
		require.Equal(t, run.Succeeded, doc.Status)
		require.Equal(t, map[string]run.Status{"maybe": run.Skipped, "after": run.Succeeded}, states(doc))
		require.Nil(t, doc.Stages[0].Cause)
	})

	t.Run("RunsMatrixLegsAtMostSoManyAtOnce", func(t *testing.T) {
		t.Parallel()
		legs := []run.Leg{{"n": "1"}, {"n": "2"}, {"n": "3"}, {"n": "4"}, {"n": "5"}}
		b := setup(t, plan(stage("m", []spec.Step{
			step("a", func(s *spec.Step) { s.Env = map[string]string{"N": "${{ matrix.n }}"} }),
		}, func(s *spec.Stage) { s.Matrix = &spec.Matrix{Legs: legs, MaxParallel: 2} })))
		doc := b.run(t)
		require.Equal(t, run.Succeeded, doc.Status)
		require.Len(t, doc.Stages, 5)
		require.Equal(t, "4", b.world.input["m[n=4]/a"].Env["N"])
		require.LessOrEqual(t, b.world.most, 2)
	})

	t.Run("RetriesAsOftenAsTheFileSays", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a", func(s *spec.Step) {
			s.Retry = spec.Retry{MaxAttempts: 6, InitialInterval: time.Second, Backoff: 2}
		})})))
		b.world.steps["a"] = exits(1, true)
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Len(t, filter(b.world.all(), "run s/a"), 6)
	})

	t.Run("EndsAtThePipelineTimeoutAndStillRunsFinally", func(t *testing.T) {
		t.Parallel()
		p := plan(stage("s", []spec.Step{step("slow")}, func(s *spec.Stage) { s.Finally = []spec.Step{step("tidy")} }))
		p.Timeout, p.Finally = time.Minute, []spec.Step{step("report")}
		b := setup(t, p)
		b.OnActivity("RunStep", anything, stepNamed("slow")).After(time.Hour).Return(&activities.StepResult{}, nil)
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		doc := b.run(t)
		require.Equal(t, run.TimedOut, doc.Status)
		require.Equal(t, run.TriggerPipelineTimeout, doc.Cause.Trigger)
		require.Equal(t, run.Cancelled, doc.Stages[0].Status)
		require.Equal(t, run.TriggerPipelineTimeout, doc.Stages[0].Cause.Trigger)
		require.Subset(t, b.world.all(), []string{"tell hosts pipeline_timeout", "end s/slow", "run s/tidy", "release s", "run finally/report"})
	})
}

func TestPipelineCancel(t *testing.T) {
	t.Parallel()

	cancelled := func(t *testing.T, extra func(*bench)) (*bench, *run.Document) {
		t.Helper()
		p := plan(
			stage("s", []spec.Step{step("slow"), step("after")}, func(s *spec.Stage) { s.Finally = []spec.Step{step("tidy")} }),
			stage("next", []spec.Step{step("n")}, needs("s")),
		)
		p.Finally = []spec.Step{step("report")}
		b := setup(t, p)
		b.OnActivity("RunStep", anything, stepNamed("slow")).After(time.Hour).Return(&activities.StepResult{}, nil)
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		b.RegisterDelayedCallback(b.CancelWorkflow, time.Minute)
		if extra != nil {
			extra(b)
		}
		return b, b.run(t)
	}

	t.Run("EndsProcessesRunsFinallyReleasesAndNamesWhoAsked", func(t *testing.T) {
		t.Parallel()
		b, doc := cancelled(t, nil)
		require.True(t, temporal.IsCanceledError(b.GetWorkflowError()))
		require.Equal(t, run.Cancelled, doc.Status)
		require.Equal(t, &run.Cause{Trigger: run.TriggerUser, By: "ada@box", Message: "wrong tag"}, doc.Cause)
		require.Equal(t, map[string]run.Status{"s": run.Cancelled, "next": run.Skipped, "finally": run.Succeeded}, states(doc))
		require.Subset(t, b.world.all(), []string{"end s/slow", "run s/tidy", "release s", "run finally/report"})
		require.NotContains(t, b.world.all(), "run s/after")
	})

	t.Run("LeavesOutFinallyWithNow", func(t *testing.T) {
		t.Parallel()
		b, doc := cancelled(t, func(b *bench) {
			b.RegisterDelayedCallback(func() { b.SignalWorkflow(workflows.NowSignal, nil) }, 30*time.Second)
		})
		require.Equal(t, run.Cancelled, doc.Status)
		require.NotContains(t, b.world.all(), "run s/tidy")
		require.NotContains(t, b.world.all(), "run finally/report")
		require.Contains(t, b.world.all(), "release s")
	})

	t.Run("BeforeTheFirstTaskRunsNothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a")})))
		b.RegisterDelayedCallback(b.CancelWorkflow, 0)
		doc := b.run(t)
		require.Equal(t, run.Cancelled, doc.Status)
		require.NotContains(t, b.world.all(), "run s/a")
	})
}

func filter(all []string, want string) []string {
	var out []string
	for _, s := range all {
		if s == want {
			out = append(out, s)
		}
	}
	return out
}
