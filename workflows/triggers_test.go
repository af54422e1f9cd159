package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// fails ends a step as an attempt does that failed with a cause of the trigger.
func fails(trigger run.Trigger) func(context.Context, activities.StepInput) (*activities.StepResult, error) {
	return func(_ context.Context, in activities.StepInput) (*activities.StepResult, error) {
		cause := run.Cause{Trigger: trigger, Source: in.Node, Message: "because"}
		return nil, temporal.NewApplicationErrorWithOptions(cause.Message, string(trigger), temporal.ApplicationErrorOptions{
			NonRetryable: true, Details: []any{activities.StepResult{Attempt: 1, Cause: &cause}},
		})
	}
}

// ofSteps are the triggers that arise in a step, with the state that they give
// it and the class of on_failure that they belong to.
var ofSteps = map[run.Trigger]struct {
	status run.Status
	class  func(*spec.OnFailure) *spec.Action
}{
	run.TriggerStepTimeout:           {run.TimedOut, func(o *spec.OnFailure) *spec.Action { return &o.Timeout }},
	run.TriggerCommandTimeout:        {run.TimedOut, func(o *spec.OnFailure) *spec.Action { return &o.Timeout }},
	run.TriggerExitCode:              {run.Failed, func(o *spec.OnFailure) *spec.Action { return &o.Error }},
	run.TriggerProcessCrashed:        {run.Failed, func(o *spec.OnFailure) *spec.Action { return &o.Error }},
	run.TriggerLimitExceeded:         {run.Failed, func(o *spec.OnFailure) *spec.Action { return &o.Error }},
	run.TriggerInvalid:               {run.Failed, func(o *spec.OnFailure) *spec.Action { return &o.Error }},
	run.TriggerWorkerLost:            {run.Failed, func(o *spec.OnFailure) *spec.Action { return &o.Lost }},
	run.TriggerDependencyUnavailable: {run.Failed, func(o *spec.OnFailure) *spec.Action { return &o.Default }},
}

// TestTriggersOfSteps holds for each trigger that arises in a step the way of
// its cause up to the run, and what on_failure makes of it at each level.
func TestTriggersOfSteps(t *testing.T) {
	t.Parallel()
	for trigger, c := range ofSteps {
		t.Run(string(trigger), func(t *testing.T) {
			t.Parallel()
			// only is the action for the trigger's class, and another for all else.
			only := func(a, otherwise spec.Action) spec.OnFailure {
				o := on(otherwise)
				*c.class(&o) = a
				return o
			}
			ends := func(p *spec.Plan) *run.Document {
				b := setup(t, p)
				b.world.steps["bad"] = fails(trigger)
				return b.run(t)
			}
			want := &run.Cause{Trigger: trigger, Source: "s/bad", Message: "because"}

			doc := ends(plan(stage("s", []spec.Step{step("bad"), step("after")}), stage("next", []spec.Step{step("n")}, needs("s"))))
			require.Equal(t, c.status, doc.Status)
			require.Equal(t, want, doc.Cause)
			require.Equal(t, want, doc.Stages[0].Cause)
			require.Equal(t, run.Skipped, doc.Stages[1].Status)
			require.Equal(t, &run.Cause{Trigger: run.TriggerDependencyFailed, Source: "s/bad", Message: "because"}, doc.Stages[1].Cause)

			for _, level := range []func(spec.OnFailure) *spec.Plan{
				func(o spec.OnFailure) *spec.Plan { return plan(stage("s", []spec.Step{step("bad", failing(o))})) },
				func(o spec.OnFailure) *spec.Plan {
					return plan(stage("s", []spec.Step{group("g", failing(o), step("bad"), step("other"))}))
				},
				func(o spec.OnFailure) *spec.Plan {
					return plan(stage("s", []spec.Step{step("bad")}, func(s *spec.Stage) { s.OnFailure = o }))
				},
			} {
				require.Equal(t, run.Succeeded, ends(level(only(spec.Ignore, spec.Abort))).Status)
				require.Equal(t, c.status, ends(level(only(spec.Continue, spec.Ignore))).Status)
				require.Equal(t, c.status, ends(level(only(spec.Abort, spec.Ignore))).Status)
			}
		})
	}
}

// TestTriggersFromAbove holds for each trigger that comes from above, or from
// beside, that it reaches the step, and that the run says so.
func TestTriggersFromAbove(t *testing.T) {
	t.Parallel()
	cancel := func(b *bench) { b.RegisterDelayedCallback(b.CancelWorkflow, time.Minute) }
	asked := func(trigger run.Trigger) *run.Cause {
		return &run.Cause{Trigger: trigger, By: "ada@box", Message: "why"}
	}
	for name, c := range map[string]struct {
		provoke         func(*bench)
		pipeline, stage *run.Cause
		status          run.Status
	}{
		"user":        {cancel, asked(run.TriggerUser), asked(run.TriggerUser), run.Cancelled},
		"superseded":  {cancel, asked(run.TriggerSuperseded), asked(run.TriggerSuperseded), run.Cancelled},
		"maintenance": {cancel, asked(run.TriggerMaintenance), asked(run.TriggerMaintenance), run.Cancelled},
		"pipeline_timeout": {
			func(b *bench) { b.world.plan.Timeout = time.Minute },
			&run.Cause{Trigger: run.TriggerPipelineTimeout, Message: "the pipeline's timeout of 1m0s is over"},
			&run.Cause{Trigger: run.TriggerPipelineTimeout, Message: "the pipeline's timeout of 1m0s is over"}, run.Cancelled,
		},
		"stage_timeout": {
			func(b *bench) { b.world.plan.Stages[0].Timeout = time.Minute },
			&run.Cause{Trigger: run.TriggerStageTimeout, Source: "s", Message: "the stage's timeout of 1m0s is over"},
			&run.Cause{Trigger: run.TriggerStageTimeout, Source: "s", Message: "the stage's timeout of 1m0s is over"}, run.TimedOut,
		},
		"another stage": {
			func(b *bench) {
				b.world.plan.Stages = append(b.world.plan.Stages, stage("other", []spec.Step{step("bad")}))
				b.OnActivity("RunStep", anything, stepNamed("bad")).After(time.Minute).Return(fails(run.TriggerExitCode))
			},
			&run.Cause{Trigger: run.TriggerExitCode, Source: "other/bad", Message: "because"},
			&run.Cause{Trigger: run.TriggerExitCode, Source: "other/bad", Message: "because"}, run.Cancelled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, plan(stage("s", []spec.Step{step("slow"), step("after")}), stage("next", []spec.Step{step("n")}, needs("s"))))
			b.world.cause.Cause = run.Cause{Trigger: run.Trigger(name), By: "ada@box", Message: "why"}
			c.provoke(b)
			b.OnActivity("RunStep", anything, stepNamed("slow")).After(time.Hour).Return(&activities.StepResult{}, nil)
			b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
			doc := b.run(t)
			require.Equal(t, c.pipeline, doc.Cause)
			require.Equal(t, c.stage, doc.Stages[0].Cause)
			require.Equal(t, c.status, doc.Stages[0].Status)
			require.Equal(t, run.Skipped, doc.Stages[1].Status)
			require.Equal(t, run.TriggerDependencyFailed, doc.Stages[1].Cause.Trigger)
			require.Contains(t, b.world.all(), "end s/slow", "the host is told at once")
			require.NotContains(t, b.world.all(), "run s/after")
		})
	}
}

// TestTriggersOfTheEnvironment holds what becomes of what no activity said.
func TestTriggersOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want run.Trigger
	}{
		"ASilentWorker":   {temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil), run.TriggerWorkerLost},
		"TheBackstop":     {temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil), run.TriggerStepTimeout},
		"AnUnknownError":  {temporal.NewNonRetryableApplicationError("odd", "Odd", nil), run.TriggerDependencyUnavailable},
		"AGroupThatsFull": {temporal.NewNonRetryableApplicationError("full", string(run.TriggerGroupFull), nil), run.TriggerGroupFull},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, plan(stage("s", []spec.Step{step("a")})))
			b.OnActivity("RunStep", anything, anything).Return(nil, c.err)
			doc := b.run(t)
			require.Equal(t, c.want, doc.Cause.Trigger)
			require.Equal(t, "s/a", doc.Cause.Source)
			require.Equal(t, c.want.Status(), doc.Status)
			require.Contains(t, b.world.all(), "release s")
		})
	}
}
