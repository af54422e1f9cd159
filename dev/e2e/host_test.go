package e2e_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
)

// on is a file of one stage that only workers with a label take.
func on(label, rest string) string {
	return "version: 1\nname: host\nstages:\n  - name: s\n    runs_on: " + label + rest
}

func TestKilledWorkerTakesItsProcessesAlong(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	mark := seconds(311)
	w := env.StartWorker(t, t.TempDir(), "--labels", "killed")
	r := env.Run(t, on("killed", `
    steps:
      - {name: a, grace_period: 1s, run: "echo ready; setsid sleep `+mark+` & sleep `+mark+`"}
      - {name: after, run: echo after}
    finally: [{name: tidy, run: 'echo "lost: $BELAY_WORKER_LOST"'}]
finally: [{name: report, run: echo reported}]
`))
	r.WaitLog("s/a", "ready")
	env.StartWorker(t, t.TempDir(), "--labels", "killed")
	w.Kill()
	require.Eventually(t, func() bool { return len(marked(t, mark)) == 0 }, e2e.Patience, 20*time.Millisecond)
	doc := r.Wait()
	require.Equal(t, run.Failed, doc.Status)
	require.Equal(t, run.TriggerWorkerLost, doc.Cause.Trigger)
	require.Equal(t, run.Skipped, e2e.Nodes(doc)["s/after"].Status)
	require.Equal(t, run.Succeeded, e2e.Nodes(doc)["finally/report"].Status)
	require.Equal(t, "lost: 1\n", r.Log("s/tidy"))
	require.Contains(t, r.Log("s/a"), "ready")
	replay(t, env, "33_worker_lost", doc)
}

// TestAHostThatReturnsClosesWhatHadLeaked kills a worker and starts it again: what
// it had of the run is shown as leaked until then, and as released after.
func TestAHostThatReturnsClosesWhatHadLeaked(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	w := env.StartWorker(t, t.TempDir(), "--labels", "returns")
	r := env.Run(t, on("returns", `
    steps: [{name: a, grace_period: 1s, run: "echo ready; sleep `+seconds(312)+`"}]
`))
	r.WaitLog("s/a", "ready")
	w.Kill()
	doc := r.Wait()
	require.Equal(t, run.ResourceLeaked, doc.Stages[0].Resources[0].State)
	leaked := func(args ...string) string {
		got := env.CLI(t, append([]string{"resources", "--leaked", "-o", "json"}, args...)...)
		require.Equal(t, 0, got.Code, got.Stderr)
		return got.Stdout
	}
	replay(t, env, "35_leaked", doc)
	require.Contains(t, leaked(), r.ID, "everybody sees it")
	require.Contains(t, leaked(r.ID), "workspace")

	env.StartWorker(t, w.StateDir, "--labels", "returns")
	require.Eventually(t, func() bool { return !strings.Contains(leaked(), r.ID) }, e2e.Patience, 200*time.Millisecond)
	require.NotContains(t, leaked(r.ID), "workspace")
	got := env.CLI(t, "status", r.ID, "-o", "json")
	require.Equal(t, 0, got.Code, got.Stderr)
	require.NotContains(t, got.Stdout, `"leaked"`)
}

func TestLostWorkerIsReplacedWhereTheFileSaysSo(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	first := env.StartWorker(t, t.TempDir(), "--labels", "moves")
	r := env.Run(t, on("moves", `
    on_worker_lost: rerun
    steps:
      - {name: mark, run: "test ! -e mark; touch mark"}
      - {name: slow, grace_period: 1s, run: "test -e mark; echo ready; sleep 5"}
`))
	r.WaitLog("s/slow", "ready")
	second := env.StartWorker(t, t.TempDir(), "--labels", "moves")
	first.Kill()
	doc := r.Wait()
	require.Equal(t, run.Succeeded, doc.Status)
	require.NotEmpty(t, doc.Stages[0].Notes)
	replay(t, env, "34_begun_again", doc)
	second.Signal(syscall.SIGTERM)
	require.Equal(t, 0, second.WaitExit())
}

func TestDrainEndsStagesThatAreBoundHere(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	w := env.StartWorker(t, t.TempDir(), "--labels", "drains")
	r := env.Run(t, on("drains", `
    steps:
      - {name: a, run: "echo ready; sleep 2"}
      - {name: b, run: "echo still here"}
    finally: [{name: tidy, run: echo tidied}]
`))
	r.WaitLog("s/a", "ready")
	w.Signal(syscall.SIGTERM)
	require.Equal(t, 0, w.WaitExit())
	doc := r.Wait()
	require.Equal(t, run.Succeeded, doc.Status)
	require.Contains(t, r.Log("s/b"), "still here")
}

// TestDrainTimeoutCancelsWithMaintenance is actions/runner#2595: what runs after a
// step runs also when the worker is stopped.
func TestDrainTimeoutCancelsWithMaintenance(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	mark, window := seconds(314), filepath.Join(t.TempDir(), "window")
	w := env.StartWorker(t, t.TempDir(), "--labels", "hurries", "--drain-timeout", "1s")
	r := env.Run(t, on("hurries", `
    steps:
      - name: a
        grace_period: 1s
        run: "echo ready; sleep `+mark+`"
        resources: [{kind: custom, name: window, acquire: "touch `+window+`", release: "rm -f `+window+`"}]
    finally: [{name: tidy, run: echo tidied}]
`))
	r.WaitLog("s/a", "ready")
	require.FileExists(t, window)
	w.Signal(syscall.SIGTERM)
	require.Equal(t, 0, w.WaitExit())
	requireGone(t, mark)
	require.NoFileExists(t, window, "what is held here is given back before the worker ends")
	doc := r.Wait()
	require.Equal(t, run.Cancelled, doc.Status)
	require.Equal(t, run.TriggerMaintenance, doc.Cause.Trigger)
	require.Contains(t, r.Log("s/tidy"), "tidied")
}

func TestSecondSignalEndsTheWorkerAtOnce(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	mark := seconds(313)
	w := env.StartWorker(t, t.TempDir(), "--labels", "impatient")
	r := env.Run(t, on("impatient", `
    steps: [{name: a, grace_period: 1s, run: "echo ready; sleep `+mark+`"}]
`))
	r.WaitLog("s/a", "ready")
	w.Signal(syscall.SIGTERM)
	require.Eventually(t, func() bool { return strings.Contains(w.Output(), "drain") }, e2e.Patience, 10*time.Millisecond)
	w.Signal(syscall.SIGTERM)
	w.WaitExit()
	requireGone(t, mark)
	r.Cancel("done with it")
	r.Wait()
}

func TestStageWaitsForAHostWithItsLabel(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	r := env.Run(t, on("comes-later", `
    steps: [{name: a, run: echo a}]
`))
	doc := r.WaitFor("it says what it waits for", func(d *run.Document) bool {
		return len(d.Stages) == 1 && d.Stages[0].WaitingFor != nil
	})
	require.Equal(t, "belay-steps-comes-later", doc.Stages[0].WaitingFor.Name)
	env.StartWorker(t, t.TempDir(), "--labels", "comes-later")
	require.Equal(t, run.Succeeded, r.Wait().Status)
}
