package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
)

// TestCancelOfOneAmongFifty holds that the cancel of a node, and of a run, ends
// what it means and nothing beside it.
func TestCancelOfOneAmongFifty(t *testing.T) {
	t.Parallel()
	env := e2e.Start(t, e2e.Options{Settings: []string{"--max-processes", "120"}})
	const count = 50
	mark := seconds(320)
	all := make([]*e2e.Run, count)
	for i := range all {
		all[i] = env.Run(t, fmt.Sprintf(`
version: 1
name: one-of-fifty
stages:
  - name: s
    steps:
      - name: g
        on_failure: continue
        parallel:
          - {name: a, grace_period: 1s, run: 'exec sleep %s'}
          - {name: b, grace_period: 1s, run: 'exec sleep %s'}
`, mark, mark))
	}
	for _, r := range all {
		r.WaitNode("s/a", run.Running)
		r.WaitNode("s/b", run.Running)
	}
	require.Eventually(t, func() bool { return len(marked(t, mark)) == 2*count }, e2e.Patience, 100*time.Millisecond,
		"they run, and have their processes")

	got := env.CLI(t, "cancel", all[17].ID, "--node", "s/a", "--reason", "just this")
	require.Equal(t, 0, got.Code, got.Stderr)
	all[17].WaitNode("s/a", run.Cancelled)
	all[31].Cancel("just this")
	require.Equal(t, run.Cancelled, all[31].Wait().Status)
	require.Len(t, marked(t, mark), 2*count-3)
	require.Equal(t, run.Running, e2e.Nodes(all[17].Document())["s/b"].Status)

	for _, r := range all {
		r.Cancel("all")
	}
	for i, r := range all {
		require.Equal(t, run.Cancelled, r.Wait().Status, i)
	}
	requireGone(t, mark)
}

// TestCancelInTheBackOffOfARetry holds that the next attempt never starts, and
// that nobody waits for when it would have.
func TestCancelInTheBackOffOfARetry(t *testing.T) {
	t.Parallel()
	r := shared.Get(t).Run(t, `
version: 1
name: back-off
stages:
  - name: s
    steps:
      - name: flaky
        retry: {max_attempts: 5, initial_interval: 10m}
        run: echo "attempt $BELAY_ATTEMPT"; exit 1
    finally: [{name: tidy, run: echo tidied}]
`)
	r.WaitLog("s/flaky", "attempt 1")
	r.WaitLog("s/flaky", "exit_code") // the attempt has ended
	r.Cancel("while it waits")
	doc := r.Wait()
	require.Equal(t, run.Cancelled, doc.Status)
	require.Equal(t, run.Cancelled, e2e.Nodes(doc)["s/flaky"].Status)
	require.NotContains(t, r.Log("s/flaky"), "attempt 2")
	require.Contains(t, r.Log("s/tidy"), "tidied")
}

// TestCancelRacesTheEnd holds that a cancel that meets a run about to end is
// either too late or wins, and that whatever it is, nothing is left and the
// record is of one piece.
func TestCancelRacesTheEnd(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	for i := range 12 {
		r := env.Run(t, `
version: 1
name: race
stages: [{name: s, steps: [{name: a, grace_period: 1s, run: sleep 0.2}]}]
`)
		r.WaitNode("s/a", run.Running)
		// Not to wait for anything: the moments around the end are what is tried, and
		// each outcome is right in each.
		time.Sleep(time.Duration(i) * 30 * time.Millisecond)
		if err := env.Temporal.Client().CancelWorkflow(t.Context(), r.ID, r.RunID); err != nil {
			require.ErrorContains(t, err, "already completed")
		}
		doc := r.Wait()
		nodes := e2e.Nodes(doc)
		require.Contains(t, []run.Status{run.Succeeded, run.Cancelled}, doc.Status)
		if doc.Status == run.Succeeded {
			require.Equal(t, run.Succeeded, nodes["s/a"].Status)
			require.Nil(t, doc.Cause)
		} else {
			require.Equal(t, run.TriggerUser, doc.Cause.Trigger)
		}
	}
}

// TestCancelInTheFinallyOfAPipeline holds that a cancel that comes while only
// cleaning up is left does not cut it, and that the run does not end as
// succeeded.
func TestCancelInTheFinallyOfAPipeline(t *testing.T) {
	t.Parallel()
	asked := filepath.Join(t.TempDir(), "asked")
	r := shared.Get(t).Run(t, `
version: 1
name: late
stages: [{name: s, steps: [{name: a, run: echo a}]}]
finally: [{name: report, run: "echo begun; while ! test -e `+asked+`; do sleep 0.1; done; echo reported"}]
`)
	r.WaitLog("finally/report", "begun")
	r.Cancel("late")
	touch(t, asked)
	doc := r.Wait()
	require.Equal(t, run.Cancelled, doc.Status)
	require.Equal(t, "late", doc.Cause.Message)
	require.Equal(t, run.Succeeded, e2e.Nodes(doc)["s"].Status)
	require.Contains(t, r.Log("finally/report"), "reported")
}

// TestFinallyHasTimeOfItsOwn holds that the timeout of the run takes nothing from
// finally, and that finally_timeout ends what takes too long, so that the
// release comes all the same.
func TestFinallyHasTimeOfItsOwn(t *testing.T) {
	t.Parallel()
	mark := seconds(321)
	r := shared.Get(t).Run(t, `
version: 1
name: budgets
timeout: 2s
finally_timeout: 15s
stages:
  - name: s
    steps: [{name: a, grace_period: 500ms, run: "sleep `+mark+`"}]
    finally:
      - {name: takes-its-time, grace_period: 500ms, run: "sleep 3; echo done"}
      - {name: too-long, grace_period: 500ms, run: "echo begun; sleep `+mark+`"}
finally: [{name: report, grace_period: 500ms, run: "echo reported"}]
`)
	doc := r.Wait()
	requireGone(t, mark)
	nodes := e2e.Nodes(doc)
	require.Equal(t, run.TimedOut, doc.Status)
	require.Equal(t, run.TriggerPipelineTimeout, doc.Cause.Trigger)
	require.Equal(t, run.Succeeded, nodes["s/takes-its-time"].Status)
	require.Equal(t, run.Cancelled, nodes["s/too-long"].Status)
	require.True(t, strings.HasPrefix(nodes["s/too-long"].Cause.Message, "the finally_timeout of 15s is over"), nodes["s/too-long"].Cause)
	require.Equal(t, run.Succeeded, nodes["finally/report"].Status)
}
