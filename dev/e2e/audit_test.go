package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"belay.run/dev/e2e"
	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/liveness"
	"belay.run/internal/run"
	"belay.run/starter/cli"
)

// keyedFile is a pipeline that runs once under a key.
func keyedFile(key, script string) string {
	return fmt.Sprintf(`
version: 1
name: keyed
dedup: {key: %s, window: 1h}
inputs:
  tag: {type: string, default: v1}
stages:
  - name: s
    steps:
      - name: x
        grace_period: 20s
        run: |
          %s
`, key, script)
}

func ownerOf(d *run.Document) dedup.Owner {
	return dedup.Owner{RunKey: d.RunKey, RunID: d.RunID, WorkflowID: d.ID}
}

func checkKey(t *testing.T, env *e2e.Env, key string) (code int, state, of string) {
	t.Helper()
	r := env.CLI(t, "dedup", "check", "--key", key, "--pipeline", "keyed", "-o", "json")
	var doc struct {
		State       string
		DuplicateOf string `json:"duplicate_of"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &doc), r.Stdout+r.Stderr)
	return r.Code, doc.State, doc.DuplicateOf
}

func auditOf(t *testing.T, env *e2e.Env, key string) []audit.Entry {
	t.Helper()
	r := env.CLI(t, "dedup", "audit", "--key", key, "-o", "json")
	require.Equal(t, cli.ExitOK, r.Code, r.Stderr)
	var doc struct{ Entries []audit.Entry }
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &doc))
	return doc.Entries
}

func TestADuplicateIsInTheAudit(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	key := "audit-" + uuid.NewString()
	first := env.Run(t, keyedFile(key, "sleep "+seconds(331)))
	first.WaitNode("s/x", run.Running)
	code, state, of := checkKey(t, env, key)
	require.Equal(t, cli.ExitRejected, code)
	require.Equal(t, "running", state)
	require.Equal(t, first.String(), of)
	require.Empty(t, auditOf(t, env, key), "the first is no duplicate, and a look is none")

	second := env.Run(t, keyedFile(key, "sleep "+seconds(332)))
	var entries []audit.Entry
	require.Eventually(t, func() bool {
		entries = auditOf(t, env, key)
		return len(entries) > 0
	}, e2e.Patience, 100*time.Millisecond)
	require.Len(t, entries, 1)
	require.Equal(t, audit.DoubleTrigger, entries[0].RootCause)
	require.Equal(t, first.ID, entries[0].Owner)
	require.Equal(t, first.RunID, entries[0].OwnerRun)
	require.Equal(t, second.ID, entries[0].Run)
	require.Equal(t, "test@e2e", entries[0].By)
	first.Cancel("the test is over")
	second.Wait()
}

func TestOnlyTemporalSaysThatAnOwnerIsDead(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	ask := liveness.New(env.Temporal.Client(), env.Temporal.Namespace())
	key := "dead-" + uuid.NewString()
	r := env.Run(t, keyedFile(key, `trap 'echo ending; sleep 3; exit 1' TERM; echo begun; while :; do sleep 0.1; done`))
	r.WaitLog("s/x", "begun")
	owner := ownerOf(r.Document())
	require.Equal(t, liveness.Answer{Alive: true}, ask.Ask(t.Context(), owner))

	// Its stage still unwinds: the owner lives although its run is closed.
	require.NoError(t, env.Temporal.Client().TerminateWorkflow(t.Context(), r.ID, r.RunID, "test"))
	r.WaitLog("s/x", "ending")
	require.True(t, ask.Ask(t.Context(), owner).Alive)
	var answer liveness.Answer
	require.Eventually(t, func() bool {
		answer = ask.Ask(t.Context(), owner)
		return !answer.Alive
	}, e2e.Patience, 100*time.Millisecond)
	require.Equal(t, run.Cancelled, answer.Status)
	require.WithinDuration(t, time.Now(), answer.EndedAt, e2e.Patience)

	stats := env.CLI(t, "dedup", "stats", "--pipeline", "keyed")
	require.Equal(t, cli.ExitOK, stats.Code, stats.Stderr)
	code, state, _ := checkKey(t, env, key)
	require.Equal(t, cli.ExitOK, code)
	if state != string(dedup.Canceled) { // else the worker's sweep came first
		require.Contains(t, stats.Stdout, key)
		require.Equal(t, "dead", state)
		released := env.CLI(t, "dedup", "release", key, "--pipeline", "keyed", "--reason", "test")
		require.Equal(t, cli.ExitOK, released.Code, released.Stderr)
		require.Equal(t, audit.OperatorRelease, auditOf(t, env, key)[0].Decision)
	}
}

func TestAResetRunIsItsOwnOwner(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	ask := liveness.New(env.Temporal.Client(), env.Temporal.Namespace())
	r := env.Run(t, keyedFile("reset-"+uuid.NewString(), "sleep 0.1"))
	d := r.Wait()
	require.Equal(t, run.Succeeded, d.Status)
	owner := ownerOf(d)
	require.Equal(t, run.Succeeded, ask.Ask(t.Context(), owner).Status)
	reset, err := env.Temporal.Client().ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: env.Temporal.Namespace(), RequestId: uuid.NewString(), Reason: "test",
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: r.ID, RunId: r.RunID}, WorkflowTaskFinishEventId: 4,
	})
	require.NoError(t, err)
	require.NotEqual(t, r.RunID, reset.GetRunId())
	// Whatever it does, it is the newest of the same run.
	info, err := env.Temporal.Client().DescribeWorkflowExecution(t.Context(), r.ID, "")
	require.NoError(t, err)
	require.Equal(t, owner.RunKey, info.GetWorkflowExecutionInfo().GetFirstRunId())
	require.NoError(t, env.Temporal.Client().GetWorkflow(t.Context(), r.ID, reset.GetRunId()).Get(t.Context(), nil))
	require.Equal(t, run.Succeeded, ask.Ask(t.Context(), owner).Status)
}

// Temporal holds the id of a completed run against another start: a release has
// to get past that too.
func TestAReleasedKeyRunsAgain(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	key := "released-" + uuid.NewString()
	path := filepath.Join(t.TempDir(), "keyed.yaml")
	require.NoError(t, os.WriteFile(path, []byte(keyedFile(key, "true")), 0o600))
	first, _ := env.RunFile(t, path)
	require.Equal(t, run.Succeeded, first.Status)
	again, r := env.RunFile(t, path)
	require.Equal(t, cli.ExitOK, r.Code)
	require.Equal(t, first.RunID, again.RunID, "it is a duplicate")
	code, state, _ := checkKey(t, env, key)
	require.Equal(t, cli.ExitRejected, code)
	require.Equal(t, "completed", state)

	released := env.CLI(t, "dedup", "release", key, "--pipeline", "keyed", "--reason", "test")
	require.Equal(t, cli.ExitOK, released.Code, released.Stderr)
	code, state, _ = checkKey(t, env, key)
	require.Equal(t, cli.ExitOK, code)
	require.Equal(t, "released", state)
	second, _ := env.RunFile(t, path)
	require.Equal(t, run.Succeeded, second.Status)
	require.NotEqual(t, first.RunID, second.RunID)

	decisions := make([]audit.Decision, 0, 2)
	for _, e := range auditOf(t, env, key) {
		decisions = append(decisions, e.Decision)
	}
	require.Equal(t, []audit.Decision{audit.OperatorRelease, audit.Answered}, decisions)
}
