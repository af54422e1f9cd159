package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
)

// holdingStage is a stage that holds a lock and other things over its steps, and
// writes down what happens in a file.
func holdingStage(label, lock, trace, more, script string) string {
	return on(label, more+`
    env: {TRACE: '`+trace+`'}
    resources:
      - {kind: lock, name: `+lock+`}
      - {kind: port, name: web}
      - {kind: temp_dir, name: scratch}
      - {kind: custom, name: window, acquire: 'echo "open $BELAY_PORT_WEB" >> "$TRACE"; echo id=w1', release: 'echo "close $BELAY_RESOURCE_ID" >> "$TRACE"'}
    steps:
      - {name: first, run: 'echo "first $BELAY_LOCK_TOKEN_`+strings.ToUpper(lock)+`" >> "$TRACE"; : > "$BELAY_DIR_SCRATCH/kept"'}
      - {name: second, grace_period: 1s, run: 'test -e "$BELAY_DIR_SCRATCH/kept"; echo "second $BELAY_LOCK_TOKEN_`+strings.ToUpper(lock)+`" >> "$TRACE"; `+script+`'}
    finally:
      - {name: tidy, run: 'echo "tidy $BELAY_LOCK_TOKEN_`+strings.ToUpper(lock)+`" >> "$TRACE"'}
`)
}

// traced are the lines of a file that steps write to.
func traced(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// requireAllReleased reads what a run held from its documents and the ledger.
func requireAllReleased(t *testing.T, env *e2e.Env, ref string) {
	t.Helper()
	got := env.CLI(t, "resources", ref, "-o", "json")
	require.Equal(t, 0, got.Code, got.Stderr)
	var held struct {
		Resources []struct{ Kind, Name, Scope, State string }
	}
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &held))
	kinds := map[string]bool{}
	for _, h := range held.Resources {
		require.Equal(t, "released", h.State, "%v", h)
		if h.Scope == "stage" {
			kinds[h.Kind] = true
		}
	}
	for _, kind := range []string{"lock", "port", "temp_dir", "custom"} {
		require.True(t, kinds[kind], "%s in %v", kind, held)
	}
}

// TestAStageHoldsResourcesOverAllItsSteps: a cancel of one that waits for the lock
// leaves the queue, and that of one that has it gives all back after its finally.
func TestAStageHoldsResourcesOverAllItsSteps(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	env.StartWorker(t, t.TempDir(), "--labels", "stagehold")
	mark, trace := seconds(391), filepath.Join(t.TempDir(), "trace")
	r := env.Run(t, holdingStage("stagehold", "held", trace, "", "echo ready; sleep "+mark))
	r.WaitLog("s/second", "ready")
	other := filepath.Join(t.TempDir(), "trace")
	waits := env.Run(t, holdingStage("stagehold", "held", other, "", "echo never"))
	waits.WaitFor("it waits for the lock", func(d *run.Document) bool {
		if len(d.Stages) == 0 {
			return false
		}
		w := d.Stages[0].WaitingFor
		return w != nil && w.Kind == "lock" && strings.HasPrefix(w.Holder, r.ID) && w.Position == 1
	})
	waits.Cancel("enough")
	doc := waits.Wait()
	require.Equal(t, run.Cancelled, doc.Status)
	require.Empty(t, traced(t, other), "nothing of it ran, its finally neither")

	r.Cancel("enough")
	doc = r.Wait()
	requireGone(t, mark)
	require.Equal(t, run.Cancelled, doc.Status)
	lines := traced(t, trace)
	require.Len(t, lines, 5, "%v", lines)
	token := strings.Fields(lines[1])[1]
	require.NotEmpty(t, token)
	require.Equal(t, []string{"first " + token, "second " + token, "tidy " + token, "close w1"}, lines[1:])
	requireAllReleased(t, env, r.String())
	replay(t, env, "37_stage_holds", doc)
}

// TestWhatATerminatedStageHeldIsGivenBack by the janitor.
func TestWhatATerminatedStageHeldIsGivenBack(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	env.StartWorker(t, t.TempDir(), "--labels", "stageholdterm")
	mark, trace := seconds(392), filepath.Join(t.TempDir(), "trace")
	r := env.Run(t, holdingStage("stageholdterm", "termed", trace, "", "echo ready; sleep "+mark))
	r.WaitLog("s/second", "ready")
	doc := r.WaitNode("s/second", run.Running)
	c := env.Temporal.Client()
	require.NoError(t, c.TerminateWorkflow(t.Context(), r.ID, r.RunID, "enough"))
	require.NoError(t, c.TerminateWorkflow(t.Context(), doc.Stages[0].WorkflowID, doc.Stages[0].RunID, "enough"))
	require.Eventually(t, func() bool {
		janitorPass(t, env)
		return reaped(t, env, doc.RunKey, "")
	}, e2e.Patience, 500*time.Millisecond, "the run is not reaped")
	requireGone(t, mark)
	lines := traced(t, trace)
	require.Equal(t, "close w1", lines[len(lines)-1])
	requireAllReleased(t, env, r.String())
	next := env.Run(t, holdingStage("stageholdterm", "termed", trace, "", "echo over"))
	require.Equal(t, run.Succeeded, next.Wait().Status, "the lock is free")
}

// TestWhatALostWorkerHeldForAStageIsTakenAgain on the host to which the stage moves,
// under a token that is higher.
func TestWhatALostWorkerHeldForAStageIsTakenAgain(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	w := env.StartWorker(t, t.TempDir(), "--labels", "stageholdlost")
	mark, trace := seconds(393), filepath.Join(t.TempDir(), "trace")
	again := filepath.Join(t.TempDir(), "again")
	r := env.Run(t, holdingStage("stageholdlost", "lost", trace, "\n    on_worker_lost: rerun",
		`if test -e "`+again+`"; then exit 0; fi; : > "`+again+`"; echo ready; sleep `+mark))
	r.WaitLog("s/second", "ready")
	env.StartWorker(t, t.TempDir(), "--labels", "stageholdlost")
	w.Kill()
	doc := r.Wait()
	requireGone(t, mark)
	require.Equal(t, run.Succeeded, doc.Status, "%v", doc.Stages[0].Notes)
	var tokens []int
	var rest []string
	for _, line := range traced(t, trace) {
		fields := strings.Fields(line)
		if fields[0] == "first" || fields[0] == "second" || fields[0] == "tidy" {
			token, err := strconv.Atoi(fields[1])
			require.NoError(t, err)
			tokens = append(tokens, token)
		}
		rest = append(rest, fields[0])
	}
	require.Equal(t, []string{"open", "first", "second", "close", "open", "first", "second", "tidy", "close"}, rest)
	require.Equal(t, tokens[0], tokens[1])
	require.Greater(t, tokens[2], tokens[1])
	require.Equal(t, []int{tokens[2], tokens[2]}, tokens[3:])
	replay(t, env, "38_stage_hold_lost", doc)
}
