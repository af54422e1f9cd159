package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

func TestQuotaOfATenant(t *testing.T) {
	t.Parallel()

	bounded := func(change ...func(*spec.Plan)) *spec.Plan {
		p := plan(stage("s", []spec.Step{step("a")}))
		p.TenantRuns, p.Timeout = 3, time.Minute
		for _, c := range change {
			c(p)
		}
		return p
	}

	t.Run("IsTakenBeforeTheGroupAndGivenBackAfterIt", func(t *testing.T) {
		t.Parallel()
		b := setup(t, bounded(func(p *spec.Plan) { p.Concurrency = grouped("deploy") }))
		asked := slots(b, 0, activities.SlotNews{State: activities.SlotGranted, Group: run.QuotaGroup},
			activities.SlotNews{State: activities.SlotGranted, Group: "deploy"})
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Equal(t, []string{
			"acquire quota:runs for ", "acquire deploy for ", "bind s", "run s/a", "release s", "leave deploy for ", "leave quota:runs for ",
		}, b.world.all())
		require.Empty(t, (*asked)[0].Project, "a quota is one of all projects")
		require.Equal(t, 3, (*asked)[0].Request.Limit)
	})

	t.Run("IsWaitedForOutsideOfTheTimeout", func(t *testing.T) {
		t.Parallel()
		b := setup(t, bounded())
		slots(b, time.Hour, activities.SlotNews{State: activities.SlotGranted, Group: run.QuotaGroup})
		var doc run.Document
		b.RegisterDelayedCallback(func() {
			value, err := b.QueryWorkflow("status")
			require.NoError(t, err)
			require.NoError(t, value.Get(&doc))
		}, 30*time.Minute)
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.NotNil(t, doc.WaitingFor)
		require.Equal(t, "quota", doc.WaitingFor.Kind)
		require.Equal(t, "runs of default", doc.WaitingFor.Name)
	})

	t.Run("IsLeftByACancelInItsQueue", func(t *testing.T) {
		t.Parallel()
		b := setup(t, bounded(func(p *spec.Plan) { p.Concurrency, p.Finally = grouped("deploy"), []spec.Step{step("report")} }))
		slots(b, 0)
		b.RegisterDelayedCallback(b.CancelWorkflow, time.Minute)
		require.Equal(t, run.Cancelled, b.run(t).Status)
		require.ElementsMatch(t, []string{"acquire quota:runs for ", "cause", "leave quota:runs for "}, b.world.all())
	})
}
