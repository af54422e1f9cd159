package workflows_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/retention"
	"belay.run/internal/spec"
)

func TestJanitor(t *testing.T) {
	t.Parallel()

	pass := func(t *testing.T, env *testsuite.TestWorkflowEnvironment) *activities.JanitorResult {
		t.Helper()
		env.ExecuteWorkflow(activities.JanitorWorkflow, activities.JanitorInput{})
		require.True(t, env.IsWorkflowCompleted())
		require.NoError(t, env.GetWorkflowError())
		var res activities.JanitorResult
		require.NoError(t, env.GetWorkflowResult(&res))
		return &res
	}

	t.Run("ReleasesWhatEachRunLeft", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		r.found.Runs = []activities.Owner{reapInput("a").Owner, reapInput("b").Owner, reapInput("c").Owner}
		r.found.More = true
		r.left["a"] = activities.Remains{Entries: []resource.Entry{held("a", "s/a", "lock", "l", resource.ScopeStep)}}
		r.left["b"] = activities.Remains{Entries: []resource.Entry{held("b", "s/a", "lock", "stuck", resource.ScopeStep)}}
		r.closed["c"] = activities.Closed{Open: true}
		r.refuses["stuck"] = 9
		res := pass(t, env)
		require.Equal(t, 1, res.Released)
		require.Equal(t, 1, res.Leaked)
		require.True(t, res.More)
		require.Len(t, res.Runs, 2, "the run that is open is none of the janitor's")
		require.Empty(t, res.UnderWay)
		require.Contains(t, r.all(), "confirm a cancelled")
		require.NotContains(t, r.all(), "confirm b cancelled")
	})

	t.Run("NamesAsMuchAsItsResultHolds", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		r.found.Runs = []activities.Owner{reapInput("a").Owner, reapInput("b").Owner}
		e := activities.ReapedEntry{Node: "s/a", Kind: "lock", Name: "l", Error: strings.Repeat("é", 600)}
		big := &activities.ReapResult{RunKey: "k", Leaked: slices.Repeat([]activities.ReapedEntry{e}, 700)}
		env.OnWorkflow(activities.ReapWorkflow, anything, anything).Return(big, nil)
		res := pass(t, env)
		require.Equal(t, 1400, res.Leaked)
		require.Equal(t, 400, res.Left)
		require.Len(t, res.Runs, 2)
		require.LessOrEqual(t, len(res.Runs[0].Leaked[0].Error), 515)
		require.True(t, utf8.ValidString(res.Runs[0].Leaked[0].Error))
	})

	t.Run("TellsOfRunsThatAreOverdue", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		who := &spec.Notify{Webhook: "http://x"}
		r.found.Overdue = []activities.Overdue{
			{Owner: reapInput("a").Owner, Notify: who, Deadline: time.Unix(9, 0).UTC(), Tenant: "t", Project: "p", Pipeline: "n"},
			{Owner: reapInput("b").Owner},
		}
		res := pass(t, env)
		require.Equal(t, []string{"id-a", "id-b"}, res.Overdue)
		require.Equal(t, []string{"find 50", "tell http://x: overdue  of id-a"}, r.all(), "nobody is to be told of the other, and nothing is touched")
		require.Empty(t, res.Notes)
	})

	t.Run("RemovesWhatIsTooOldWhereItIsAskedFor", func(t *testing.T) {
		t.Parallel()
		for _, fails := range []bool{false, true} {
			env, r := reaper(t)
			r.refusesToExpire = fails
			env.ExecuteWorkflow(activities.JanitorWorkflow, activities.JanitorInput{Retention: true})
			require.NoError(t, env.GetWorkflowError())
			var res activities.JanitorResult
			require.NoError(t, env.GetWorkflowResult(&res))
			require.Contains(t, r.all(), "expire")
			if fails {
				require.Nil(t, res.Expired)
				require.Len(t, res.Notes, 1)
				require.Contains(t, res.Notes[0], "too old")
				continue
			}
			require.Equal(t, &retention.Result{Logs: 3}, res.Expired)
		}
		env, r := reaper(t)
		require.Nil(t, pass(t, env).Expired)
		require.NotContains(t, r.all(), "expire", "no pass did before it knew how")
	})

	t.Run("DoesNotWaitForWhatTakesLong", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		r.found.Runs = []activities.Owner{reapInput("slow").Owner}
		env.OnWorkflow(activities.ReapWorkflow, anything, anything).After(time.Hour).Return(&activities.ReapResult{}, nil)
		require.Equal(t, []string{"id-slow"}, pass(t, env).UnderWay)
	})
}
