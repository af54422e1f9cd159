package workflows_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// slots has a group answer each who asks with news, after a while. It returns
// where the requests are kept.
func slots(b *bench, after time.Duration, news ...activities.SlotNews) *[]activities.SlotInput {
	var asked []activities.SlotInput
	note := func(what string, in activities.SlotInput) {
		b.world.note(what + " " + in.Group + " for " + in.Request.Owner.Node)
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		asked = append(asked, in)
	}
	b.OnActivity("AcquireSlot", anything, anything).Return(func(_ context.Context, in activities.SlotInput) error {
		note("acquire", in)
		for _, n := range news {
			b.RegisterDelayedCallback(func() {
				// It may have ended by then.
				_ = b.SignalWorkflowByID(in.Request.Owner.WorkflowID, activities.SlotNewsSignal, n)
			}, after)
		}
		return nil
	})
	b.OnActivity("ReleaseSlot", anything, anything).Return(func(_ context.Context, in activities.SlotInput) error {
		note("leave", in)
		return nil
	})
	return &asked
}

// AcquireSlot and ReleaseSlot are there to be stood in for.
func (w *world) AcquireSlot(context.Context, activities.SlotInput) error { return nil }

func (w *world) ReleaseSlot(context.Context, activities.SlotInput) error { return nil }

var granted = activities.SlotNews{State: activities.SlotGranted}

func grouped(name string) *spec.Concurrency {
	return &spec.Concurrency{Group: name, Limit: 2, OnFull: spec.OnFullQueue}
}

func inGroup(name string) func(*spec.Stage) {
	return func(s *spec.Stage) { s.Concurrency = grouped(name) }
}

func TestConcurrencyOfAPipeline(t *testing.T) {
	t.Parallel()

	inPlan := func(stages ...spec.Stage) *spec.Plan {
		p := plan(stages...)
		p.Inputs = map[string]any{"env": "prod"}
		p.Concurrency, p.Finally = grouped("deploy-${{ inputs.env }}"), []spec.Step{step("report")}
		return p
	}

	t.Run("HoldsItsSlotFromBeforeTheFirstStageToAfterTheLast", func(t *testing.T) {
		t.Parallel()
		b := setup(t, inPlan(stage("s", []spec.Step{step("a", func(s *spec.Step) { s.GracePeriod = time.Minute })})))
		asked := slots(b, time.Second, granted)
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Equal(t, []string{
			"acquire deploy-prod for ", "bind s", "run s/a", "release s",
			"bind finally", "run finally/report", "release finally", "leave deploy-prod for ",
		}, b.world.all())
		request := (*asked)[0].Request
		require.Equal(t, 2, request.Limit)
		require.Greater(t, request.Linger, time.Minute)
	})

	t.Run("DoesNotCountTheQueueInItsTimeout", func(t *testing.T) {
		t.Parallel()
		p := inPlan(stage("s", []spec.Step{step("a")}))
		p.Timeout = time.Minute
		b := setup(t, p)
		slots(b, time.Hour, granted)
		require.Equal(t, run.Succeeded, b.run(t).Status)
	})

	t.Run("ShowsWhatItWaitsFor", func(t *testing.T) {
		t.Parallel()
		b := setup(t, inPlan(stage("s", []spec.Step{step("a")})))
		slots(b, time.Minute, activities.SlotNews{State: activities.SlotQueued, Position: 3, Holder: "t/p/x/r/1"})
		var doc run.Document
		b.RegisterDelayedCallback(func() {
			value, err := b.QueryWorkflow("status")
			require.NoError(t, err)
			require.NoError(t, value.Get(&doc))
			b.SignalWorkflow(activities.SlotNewsSignal, granted)
		}, 2*time.Minute)
		last := b.run(t)
		require.Equal(t, run.Succeeded, last.Status)
		require.Nil(t, last.WaitingFor)
		require.NotNil(t, doc.WaitingFor)
		require.NotNil(t, doc.WaitingFor.Since)
		doc.WaitingFor.Since = nil
		require.Equal(t, &run.WaitingFor{Kind: "group", Name: "deploy-prod", Position: 3, Holder: "t/p/x/r/1"}, doc.WaitingFor)
	})

	t.Run("CancelledInTheQueueRunsNothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t, inPlan(stage("s", []spec.Step{step("a")}), stage("page", []spec.Step{step("b")}, func(s *spec.Stage) {
			s.When = &spec.Condition{Expr: `pipeline.status == "cancelled"`, ReadsStatus: true}
		})))
		slots(b, 0)
		b.RegisterDelayedCallback(b.CancelWorkflow, time.Minute)
		doc := b.run(t)
		require.True(t, temporal.IsCanceledError(b.GetWorkflowError()))
		require.Equal(t, run.Cancelled, doc.Status)
		require.Equal(t, "wrong tag", doc.Cause.Message)
		require.Equal(t, map[string]run.Status{"s": run.Skipped, "page": run.Skipped}, states(doc))
		require.ElementsMatch(t, []string{"acquire deploy-prod for ", "cause", "leave deploy-prod for "}, b.world.all())
	})

	t.Run("FailsWhereItIsRefused", func(t *testing.T) {
		t.Parallel()
		b := setup(t, inPlan(stage("s", []spec.Step{step("a")})))
		slots(b, 0, activities.SlotNews{State: activities.SlotRefused, Holder: "t/p/x/r/1"})
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, run.TriggerGroupFull, doc.Cause.Trigger)
		require.Contains(t, doc.Cause.Message, "t/p/x/r/1")
		require.NotContains(t, b.world.all(), "bind s")
		require.NotContains(t, b.world.all(), "run finally/report")
		var app *temporal.ApplicationError
		require.ErrorAs(t, b.GetWorkflowError(), &app)
		require.Equal(t, "group_full", app.Type())
	})

	t.Run("AsksAgainInCaseTheGroupWasTerminated", func(t *testing.T) {
		t.Parallel()
		b := setup(t, inPlan(stage("s", []spec.Step{step("a")})))
		slots(b, 11*time.Minute, granted)
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Len(t, filter(b.world.all(), "acquire deploy-prod for "), 3)
	})

	t.Run("FailsWhereItsGroupHasNoName", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"", " ", "two\nlines", strings.Repeat("x", spec.MaxGroup+1)} {
			p := inPlan(stage("s", []spec.Step{step("a")}))
			p.Inputs = map[string]any{"env": name}
			p.Concurrency.Group = "${{ inputs.env }}"
			b := setup(t, p)
			doc := b.run(t)
			require.Equal(t, run.Failed, doc.Status, "%q", name)
			require.Equal(t, run.TriggerInvalid, doc.Cause.Trigger)
			require.Empty(t, b.world.all())
		}
	})
}

func TestConcurrencyOfAStage(t *testing.T) {
	t.Parallel()

	t.Run("HoldsItsSlotFromBeforeItsHostToAfterItsWorkspace", func(t *testing.T) {
		t.Parallel()
		p := plan(
			stage("s", []spec.Step{step("a")}, inGroup("cluster-${{ env.ZONE }}"), func(s *spec.Stage) {
				s.Finally = []spec.Step{step("tidy")}
			}),
		)
		p.Env = map[string]string{"ZONE": "z1"}
		b := setup(t, p)
		slots(b, time.Second, granted)
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Equal(t, []string{
			"acquire cluster-z1 for s", "bind s", "run s/a", "run s/tidy", "release s", "leave cluster-z1 for s",
		}, b.world.all())
	})

	t.Run("DoesNotCountTheQueueInItsTimeout", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a")}, inGroup("g"), func(s *spec.Stage) { s.Timeout = time.Minute })))
		slots(b, time.Hour, granted)
		require.Equal(t, run.Succeeded, b.run(t).Status)
	})

	t.Run("KeepsItsSlotWhenItBeginsAgainElsewhere", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a")}, inGroup("g"), func(s *spec.Stage) { s.OnWorkerLost = spec.LostRerun })))
		slots(b, 0, granted)
		b.OnActivity("RunStep", anything, anything).Return(nil, notPickedUp(0)).Once()
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		b.world.alive = func() bool { return false }
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Len(t, filter(b.world.all(), "bind s"), 2)
		require.Len(t, filter(b.world.all(), "acquire g for s"), 1)
		require.Len(t, filter(b.world.all(), "leave g for s"), 1)
	})

	t.Run("CancelledInTheQueueRunsNothing", func(t *testing.T) {
		t.Parallel()
		p := plan(stage("s", []spec.Step{step("n", func(s *spec.Step) { s.Run, s.Uses = nil, "noop" })}, inGroup("g"),
			func(s *spec.Stage) {
				s.Finally = []spec.Step{step("tidy", func(s *spec.Step) { s.Run, s.Uses = nil, "noop" })}
			}))
		p.Finally = []spec.Step{step("report")}
		b := setup(t, p)
		slots(b, 0)
		b.RegisterDelayedCallback(b.CancelWorkflow, time.Minute)
		doc := b.run(t)
		require.Equal(t, run.Cancelled, doc.Status)
		require.Equal(t, map[string]run.Status{"s": run.Cancelled}, states(doc))
		require.Nil(t, doc.Stages[0].StartedAt)
		require.Contains(t, b.world.all(), "leave g for s")
		require.NotContains(t, b.world.all(), "run finally/report")
	})

	t.Run("FailsWhereItIsRefusedAndSoDoesTheRun", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a")}, inGroup("g")), stage("next", []spec.Step{step("b")}, needs("s"))))
		slots(b, 0, activities.SlotNews{State: activities.SlotRefused, Holder: "t/p/x/r/1"})
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, run.TriggerGroupFull, doc.Cause.Trigger)
		require.Equal(t, "s", doc.Cause.Source)
		require.Equal(t, map[string]run.Status{"s": run.Failed, "next": run.Skipped}, states(doc))
	})
}
