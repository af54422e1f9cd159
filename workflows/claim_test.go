package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/workflows"
)

// keyed is a plan with a key.
func keyed(stages ...spec.Stage) *spec.Plan {
	p := plan(stages...)
	p.Dedup = &spec.Dedup{Key: "k", OnDuplicate: spec.OnDuplicateAttach, OnMismatch: spec.OnDuplicateAttach, ClaimTimeout: time.Minute}
	return p
}

// other is the claim of another run.
func other(state dedup.State) dedup.Record {
	return dedup.Record{State: state, Owner: dedup.Owner{RunKey: "k0", WorkflowID: "w0", RunID: "r0"}}
}

func one() spec.Stage { return stage("s", []spec.Step{step("a")}) }

func TestPipelineClaim(t *testing.T) {
	t.Parallel()
	failure := &run.Cause{Trigger: run.TriggerExitCode, Source: "s/a", Message: "exit code 1"}

	t.Run("RunsUnderItsClaimAndSettlesIt", func(t *testing.T) {
		t.Parallel()
		b := setup(t, keyed(one()))
		doc := b.run(t)
		require.Equal(t, run.Succeeded, doc.Status)
		require.Equal(t, "k", doc.DedupKey)
		require.Equal(t, []string{"claim k", "bind s", "run s/a", "release s", "settle k succeeded"}, b.world.all())
	})

	t.Run("SettlesHoweverItEnds", func(t *testing.T) {
		t.Parallel()
		b := setup(t, keyed(one()))
		b.world.steps["a"] = exits(1, false)
		require.Equal(t, run.Failed, b.run(t).Status)
		require.Contains(t, b.world.all(), "settle k failed")

		b = setup(t, keyed(one()))
		b.OnActivity("RunStep", anything, anything).After(time.Hour).Return(&activities.StepResult{}, nil)
		b.RegisterDelayedCallback(b.CancelWorkflow, time.Minute)
		require.Equal(t, run.Cancelled, b.run(t).Status)
		require.Contains(t, b.world.all(), "settle k cancelled")
	})

	t.Run("ClosesAsItsOriginalDid", func(t *testing.T) {
		t.Parallel()
		b := setup(t, keyed(one()))
		b.world.claims = []activities.ClaimResult{{Decision: dedup.Duplicate, Answer: audit.Answered, Record: other(dedup.Completed)}}
		doc := b.run(t)
		require.NoError(t, b.GetWorkflowError())
		require.Equal(t, run.Duplicate, doc.Status)
		require.Equal(t, "w0", doc.DuplicateOf)
		require.Equal(t, "r0", doc.DuplicateRunID)
		require.Equal(t, []string{"claim k"}, b.world.all())

		late := other(dedup.Failed)
		late.Result.Cause = failure
		b = setup(t, keyed(one()))
		b.world.claims = []activities.ClaimResult{{Decision: dedup.Late, Answer: audit.Answered, Record: late}}
		doc = b.run(t)
		var app *temporal.ApplicationError
		require.ErrorAs(t, b.GetWorkflowError(), &app)
		require.Equal(t, run.ErrorDuplicate, app.Type())
		require.Equal(t, failure, doc.Cause)
	})

	t.Run("WaitsForTheOneInFlight", func(t *testing.T) {
		t.Parallel()
		for _, end := range []activities.RunEnd{{RunID: "r9", Status: run.Succeeded}, {RunID: "r9", Status: run.Failed, Cause: failure}} {
			b := setup(t, keyed(one()))
			b.world.claims = []activities.ClaimResult{{Decision: dedup.InFlight, Answer: audit.Attached, Record: other(dedup.Running)}}
			b.OnActivity("AwaitRun", anything, anything).After(time.Hour).Return(&end, nil)
			var seen run.Document
			b.RegisterDelayedCallback(func() {
				value, err := b.QueryWorkflow(workflows.StatusQuery)
				require.NoError(t, err)
				require.NoError(t, value.Get(&seen))
			}, time.Minute)
			doc := b.run(t)
			require.Equal(t, run.Duplicate, doc.Status)
			require.Equal(t, "r9", doc.DuplicateRunID)
			require.Equal(t, end.Cause, doc.Cause)
			require.Equal(t, end.Status == run.Succeeded, b.GetWorkflowError() == nil)
			require.Equal(t, "claim", seen.WaitingFor.Kind)
			require.Equal(t, "w0@r0", seen.WaitingFor.Holder)
		}
	})

	t.Run("RunsWhereTheOneThatUnwindsWasTerminatedBefore", func(t *testing.T) {
		t.Parallel()
		for cut, again := range map[time.Duration]bool{-time.Minute: true, time.Minute: false} {
			b := setup(t, keyed(one()))
			began := time.Now()
			b.SetStartTime(began)
			at := began.Add(cut)
			b.world.claims = []activities.ClaimResult{{Decision: dedup.InFlight, Answer: audit.Attached, Record: other(dedup.Running)}}
			b.OnActivity("AwaitRun", anything, anything).Return(&activities.RunEnd{RunID: "r0", Status: run.Cancelled, Cut: &at}, nil)
			doc := b.run(t)
			if again {
				require.Equal(t, run.Succeeded, doc.Status)
				require.Equal(t, []string{"claim k", "claim k", "bind s", "run s/a", "release s", "settle k succeeded"}, b.world.all())
			} else {
				require.Equal(t, run.Duplicate, doc.Status)
			}
		}
	})

	t.Run("LeavesTheWaitWhenItIsCancelled", func(t *testing.T) {
		t.Parallel()
		b := setup(t, keyed(one()))
		b.world.claims = []activities.ClaimResult{{Decision: dedup.InFlight, Answer: audit.Attached, Record: other(dedup.Running)}}
		b.OnActivity("AwaitRun", anything, anything).After(time.Hour).Return(&activities.RunEnd{}, nil)
		b.RegisterDelayedCallback(b.CancelWorkflow, time.Minute)
		require.Equal(t, run.Cancelled, b.run(t).Status)
		require.Equal(t, []string{"claim k", "cause"}, b.world.all())
	})

	t.Run("NeverCompletesWhenRefusedByOneInFlight", func(t *testing.T) {
		t.Parallel()
		b := setup(t, keyed(one()))
		b.world.claims = []activities.ClaimResult{{Decision: dedup.InFlight, Answer: audit.Rejected, Record: other(dedup.Running)}}
		doc := b.run(t)
		require.Error(t, b.GetWorkflowError())
		require.True(t, doc.Rejected)
		require.Equal(t, run.Duplicate, doc.Status)
	})

	t.Run("ClaimsAgainWhenOthersHaveMadeWay", func(t *testing.T) {
		t.Parallel()
		b := setup(t, keyed(one()))
		b.world.claims = []activities.ClaimResult{{Decision: dedup.InFlight, Answer: audit.Replaced, Record: other(dedup.Running)}}
		b.OnActivity("Supersede", anything, anything).After(time.Minute).Return(&activities.Superseded{}, nil)
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Equal(t, []string{"claim k", "claim k again", "bind s", "run s/a", "release s", "settle k succeeded"}, b.world.all())
	})

	t.Run("MakesWayForANewerOne", func(t *testing.T) {
		t.Parallel()
		b := setup(t, keyed(one()))
		b.world.claims = []activities.ClaimResult{{Decision: dedup.InFlight, Answer: audit.Replaced, Record: other(dedup.Running)}}
		b.OnActivity("Supersede", anything, anything).Return(&activities.Superseded{By: &dedup.Owner{WorkflowID: "w2", RunID: "r2"}}, nil)
		doc := b.run(t)
		require.Equal(t, run.Cancelled, doc.Status)
		require.Equal(t, run.TriggerSuperseded, doc.Cause.Trigger)
		require.Equal(t, []string{"claim k"}, b.world.all())
	})

	t.Run("GoesOnUncheckedAndSaysSo", func(t *testing.T) {
		t.Parallel()
		b := setup(t, keyed(one()))
		b.world.claims = []activities.ClaimResult{{Unchecked: "Redis is away"}}
		doc := b.run(t)
		require.Equal(t, run.Succeeded, doc.Status)
		require.Equal(t, []string{"Redis is away"}, doc.Notes)
		require.NotContains(t, b.world.all(), "settle k succeeded")
	})

	t.Run("TakesTheKeyOfItsStart", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(one()))
		b.ExecuteWorkflow(workflows.Pipeline, workflows.PipelineInput{File: "x", DedupKey: "${{ given }}"})
		require.Equal(t, "${{ given }}", b.document(t).DedupKey)
		require.Contains(t, b.world.all(), "claim ${{ given }}")
	})

	t.Run("IsInvalidWithoutAKeyThatCanBeUsed", func(t *testing.T) {
		t.Parallel()
		p := keyed(one())
		p.Dedup.Key = "${{ inputs.gone ?? '' }}"
		b := setup(t, p)
		require.Equal(t, run.TriggerInvalid, b.run(t).Cause.Trigger)
		require.Empty(t, b.world.all())
	})
}

func TestStepClaim(t *testing.T) {
	t.Parallel()
	key := func(k string) func(*spec.Step) {
		return func(s *spec.Step) {
			s.Dedup = &spec.Dedup{Key: k, OnDuplicate: spec.OnDuplicateAttach, ClaimTimeout: time.Minute}
		}
	}

	t.Run("IsHandedToTheStepAndSettledAtItsEnd", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a", key("${{ pipeline.name }}-1")), step("b")})))
		b.world.steps["a"] = func(_ context.Context, in activities.StepInput) (*activities.StepResult, error) {
			return &activities.StepResult{Attempt: 1, Claim: &dedup.Record{Key: in.Claim.Key, Owner: in.Claim.Owner}}, nil
		}
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Equal(t, []string{"bind s", "run s/a", "settle demo-1 succeeded", "run s/b", "release s"}, b.world.all())
		in := b.world.input["s/a"].Claim
		require.Equal(t, dedup.Key{Tenant: "default", Project: "default", Name: "demo-1"}, in.Key)
		require.Equal(t, "s/a", in.Owner.Node)
	})

	t.Run("TakesTheResultOfAnother", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{
			step("a", key("k"), func(s *spec.Step) { s.Outputs = []string{"v"} }),
			step("b", func(s *spec.Step) { s.Env = map[string]string{"V": "${{ steps.a.outputs.v }}"} }),
		})))
		b.world.steps["a"] = func(context.Context, activities.StepInput) (*activities.StepResult, error) {
			return &activities.StepResult{Attempt: 1, Outputs: map[string]string{"v": "1"}, DuplicateOf: &dedup.Owner{WorkflowID: "w0"}}, nil
		}
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Equal(t, "1", b.world.input["s/b"].Env["V"])
		require.Equal(t, []string{"bind s", "run s/a", "run s/b", "release s"}, b.world.all())
	})

	t.Run("IsSettledWhateverBecameOfTheWorker", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a", key("k"))})))
		b.world.alive = func() bool { return false }
		b.OnActivity("RunStep", anything, anything).Return(nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil))
		require.Equal(t, run.Failed, b.run(t).Status)
		require.Contains(t, b.world.all(), "settle k failed")
	})

	t.Run("RefusesOneKeyOfTwoSteps", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a", key("k")), step("b", key("${{ 'k' }}"))})))
		doc := b.run(t)
		require.Equal(t, run.TriggerInvalid, doc.Cause.Trigger)
		require.Equal(t, "s/b", doc.Cause.Source)
	})
}
