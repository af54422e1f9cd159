package e2e_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
)

// TestOnceWhileWorkersAreKilled races starters on several keys while the workers
// that run the steps are killed and started again at random: whatever a run ends
// as, its step began once, and all callers were told of that run and its end.
func TestOnceWhileWorkersAreKilled(t *testing.T) {
	t.Parallel()
	const starters = 50
	keys := []string{"a", "b", "c", "d"}
	env := shared.Get(t)
	name, ran := pipelineName(), newCounter(t)
	file := write(t, once(name, "window: 10m", ran.add(`"$K"`)+"; sleep 2", "    runs_on: killed"))

	stop := make(chan struct{})
	var killers sync.WaitGroup
	for range 2 {
		dir := t.TempDir()
		w := env.StartWorker(t, dir, "--labels", "killed")
		killers.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(1+rand.IntN(4)) * time.Second):
					w.Kill()
					w = env.StartWorker(t, dir, "--labels", "killed")
				}
			}
		})
	}

	results := make([]e2e.Result, starters*len(keys))
	racers(len(results), func(i int) {
		results[i] = env.CLI(t, "run", file, "-o", "json", "-i", "k="+keys[i%len(keys)])
	})
	close(stop)
	killers.Wait()

	type end struct {
		ref    string
		status run.Status
		code   int
	}
	told := map[string]map[end]int{}
	for i, r := range results {
		var doc run.Document
		require.NoError(t, json.Unmarshal([]byte(r.Stdout), &doc), "%s\n%s", r.Stdout, r.Stderr)
		require.NotEmpty(t, doc.ID, "%s\n%s", r.Stdout, r.Stderr)
		key := keys[i%len(keys)]
		if told[key] == nil {
			told[key] = map[end]int{}
		}
		told[key][end{doc.ID + "@" + doc.RunID, doc.Status, r.Code}]++
	}
	for _, ends := range told {
		for e := range ends {
			id, runID, _ := strings.Cut(e.ref, "@")
			replayed(t, env, id, runID)
		}
	}
	begun := map[string]int{}
	for _, key := range ran.lines(t) {
		begun[key]++
	}
	for _, key := range keys {
		require.Len(t, told[key], 1, "the callers of key %s were told different things: %v", key, told[key])
		require.LessOrEqual(t, begun[key], 1, "key %s ran more than once", key)
	}
	requireAudited(t, env, name, len(results)-len(keys), results)
}

// A run that is started again right after it was terminated waits until what was
// terminated has unwound, and runs.
func TestOnceRunsAgainAfterATerminate(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	name, ran := pipelineName(), newCounter(t)
	file := once(name, "window: 10m", "trap '' TERM; "+ran.add("ran")+`; test "$(wc -l <'`+ran.path+`')" = 2 || sleep 600`)
	first := raw(t, env, file)
	ran.await(t, 1)
	require.NoError(t, env.Temporal.Client().TerminateWorkflow(t.Context(), first.ID, first.RunID, "a test"))
	doc := raw(t, env, file).Wait()
	require.Equal(t, run.Succeeded, doc.Status)
	require.Len(t, ran.lines(t), 2)
}
