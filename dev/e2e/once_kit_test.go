package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"belay.run/dev/e2e"
	"belay.run/internal/audit"
	"belay.run/internal/config"
	"belay.run/internal/dedup"
	"belay.run/internal/liveness"
	"belay.run/internal/run"
	"belay.run/starter/runs"
	"belay.run/workflows"
)

// counter is a file to which a script adds a line whenever it runs.
type counter struct{ path string }

func newCounter(t *testing.T) *counter {
	t.Helper()
	return &counter{filepath.Join(t.TempDir(), "ran")}
}

// lines are what was added so far.
func (c *counter) lines(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(c.path)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	return strings.Fields(string(text))
}

// await waits until so many lines were added.
func (c *counter) await(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(c.lines(t)) == n }, e2e.Patience, 20*time.Millisecond, "%s has not %d lines", c.path, n)
}

// add is a script that adds a line: O_APPEND writes of a few bytes never mix.
func (c *counter) add(word string) string { return fmt.Sprintf("echo %s >> '%s'", word, c.path) }

// write writes a pipeline file.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// pipelineName is a name that no other test uses, so that no key is shared.
func pipelineName() string { return "p-" + uuid.NewString()[:8] }

// once is a pipeline with a key: its only step runs script.
func once(name, dedup, script string, more ...string) string {
	return fmt.Sprintf(`
version: 1
name: %s
timeout: 5m
inputs: {k: {type: string, default: one}, other: {type: string, default: "-"}}
dedup: {key: "${{ inputs.k }}", %s}
stages:
  - name: s
    env: {K: "${{ inputs.k }}"}
    steps:
      - name: a
        grace_period: 1s
        run: |
          %s
%s`, name, dedup, strings.ReplaceAll(script, "\n", "\n          "), strings.Join(more, "\n"))
}

// raw starts a pipeline as Temporal's UI does: with the file alone, under any id.
func raw(t *testing.T, env *e2e.Env, file string, edit ...func(*workflows.PipelineInput)) *e2e.Run {
	t.Helper()
	in := workflows.PipelineInput{File: file}
	for _, f := range edit {
		f(&in)
	}
	started, err := env.Temporal.Client().ExecuteWorkflow(t.Context(),
		client.StartWorkflowOptions{ID: "by-hand/" + uuid.NewString(), TaskQueue: run.QueueWorkflows},
		workflows.PipelineWorkflow, in)
	require.NoError(t, err)
	return env.Follow(t, runs.Ref{ID: started.GetID(), RunID: started.GetRunID()})
}

// racers calls f so many times at once.
func racers(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// claims are those of the environment's Redis.
func claims(t *testing.T, env *e2e.Env) *dedup.Claims {
	t.Helper()
	rdb, err := config.NewRedis(env.Redis.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	c, err := dedup.Open(rdb, dedup.Options{})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// record is the claim under a pipeline's key.
func record(t *testing.T, c *dedup.Claims, pipeline, name string) *dedup.Record {
	t.Helper()
	r, err := c.Lookup(t.Context(), dedup.Key{Tenant: run.DefaultTenant, Project: run.DefaultProject, Pipeline: pipeline, Name: name})
	require.NoError(t, err)
	return r
}

// audited are the entries about a pipeline.
func audited(t *testing.T, env *e2e.Env, pipeline string) []audit.Entry {
	t.Helper()
	rdb, err := config.NewRedis(env.Redis.URL)
	require.NoError(t, err)
	defer func() { require.NoError(t, rdb.Close()) }()
	var entries []audit.Entry
	for e, err := range audit.New(rdb, audit.Options{}).Read(t.Context(), audit.Filter{Pipeline: pipeline}) {
		require.NoError(t, err)
		entries = append(entries, e)
	}
	return entries
}

// requireAudited holds that each of so many duplicates is in the audit once, or that
// its command has warned that the audit does not know of it: Redis may stand still
// for longer than a command waits for it.
func requireAudited(t *testing.T, env *e2e.Env, pipeline string, duplicates int, commands []e2e.Result) {
	t.Helper()
	warned := 0
	for _, c := range commands {
		if strings.Contains(c.Stderr, "the audit does not know of this duplicate") {
			t.Log(c.Stderr)
			warned++
		}
	}
	entries := len(audited(t, env, pipeline))
	require.LessOrEqual(t, entries, duplicates, "a duplicate is audited once")
	require.GreaterOrEqual(t, entries+warned, duplicates, "%d duplicates are audited, and %d commands have warned", entries, warned)
}

// waitDead waits until nothing of a run is open any more.
func waitDead(t *testing.T, env *e2e.Env, r *e2e.Run) {
	t.Helper()
	asker := liveness.New(env.Temporal.Client(), env.Temporal.Namespace())
	owner := dedup.Owner{RunKey: r.RunID, WorkflowID: r.ID, RunID: r.RunID}
	require.Eventually(t, func() bool { return !asker.Ask(t.Context(), owner).Alive }, e2e.Patience, 50*time.Millisecond)
}

// seen closes there when words were written to it.
type seen struct {
	words string
	there chan struct{}

	mu   sync.Mutex
	text strings.Builder
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := strings.Contains(s.text.String(), s.words)
	n, err := s.text.Write(p)
	if !before && strings.Contains(s.text.String(), s.words) {
		close(s.there)
	}
	return n, err
}

// String is all that was written.
func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
