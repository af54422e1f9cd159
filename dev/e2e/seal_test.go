package e2e_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
	"belay.run/starter/runs"
)

// telltale is what must not lie readable in Temporal.
const telltale = "4929-1234-5678"

const talkative = `
version: 1
name: talkative
inputs:
  account: {type: string, default: none}
  waits: {type: bool, default: false}
stages:
  - name: first
    steps:
      - {name: says, run: 'echo "said=$A" >> "$BELAY_OUTPUT"', env: {A: "${{ inputs.account }}"}, outputs: [said]}
  - name: second
    needs: [first]
    steps:
      - {name: waits, when: "inputs.waits", run: 'echo waiting; sleep 600'}
      - {name: fails, run: 'echo "no such account: $A" >&2; exit 3', env: {A: "${{ stages.first.steps.says.outputs.said }}"}}
`

// sealing is an environment on data whose worker has these keys, which lie in dir.
func sealing(t *testing.T, data, dir, keys string) *e2e.Env {
	t.Helper()
	return e2e.Start(t, e2e.Options{Data: data, Secrets: dir, Settings: []string{"--payload-keys", keys}})
}

// payloadKeys makes a folder with keys of these names.
func payloadKeys(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		key := make([]byte, 32)
		_, err := rand.Read(key)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(base64.StdEncoding.EncodeToString(key)+"\n"), 0o600))
	}
	return dir
}

// bare is a client that sees what lies in Temporal as it lies there.
func bare(t *testing.T, env *e2e.Env) client.Client {
	t.Helper()
	c, err := client.DialContext(t.Context(), client.Options{HostPort: env.Temporal.Address(), Namespace: env.Temporal.Namespace()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// readable are the workflows in whose histories the telltale can be read, and how
// many workflows there are.
func readable(t *testing.T, c client.Client) (ids []string, of int) {
	t.Helper()
	list, err := c.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000})
	require.NoError(t, err)
	for _, w := range list.GetExecutions() {
		of++
		id, runID := w.GetExecution().GetWorkflowId(), w.GetExecution().GetRunId()
		described, err := c.DescribeWorkflowExecution(t.Context(), id, runID)
		require.NoError(t, err)
		found := holds(t, described) || holds(t, w)
		events := c.GetWorkflowHistory(t.Context(), id, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			e, err := events.Next()
			require.NoError(t, err)
			found = found || holds(t, e)
		}
		if found {
			ids = append(ids, id)
		}
	}
	return ids, of
}

func holds(t *testing.T, m proto.Message) bool {
	t.Helper()
	wire, err := proto.Marshal(m)
	require.NoError(t, err)
	return bytes.Contains(wire, []byte(telltale))
}

// TestNothingOfARunIsReadableInTemporal also holds that whoever has the key sees
// all of it: the tree, the outputs, the errors, what a step is at, and a cancel.
func TestNothingOfARunIsReadableInTemporal(t *testing.T) {
	t.Parallel()
	env := sealing(t, "", payloadKeys(t, "ONE"), "one=ONE")
	raw := bare(t, env)

	failed := env.Run(t, talkative, e2e.Inputs(map[string]string{"account": telltale})).Wait()
	require.Equal(t, run.Failed, failed.Status)
	require.Equal(t, telltale, failed.Inputs["account"])
	require.Equal(t, telltale, failed.Stages[0].Steps[0].Outputs["said"])
	require.Equal(t, run.TriggerExitCode, failed.Cause.Trigger)

	waiting := env.Run(t, talkative, e2e.Inputs(map[string]string{"account": telltale, "waits": "true"}))
	waiting.WaitLog("second/waits", "waiting")
	found, _ := readable(t, raw)
	require.Empty(t, found, "while it runs")
	waiting.Cancel("no longer needed")
	cancelled := waiting.Wait()
	require.Equal(t, run.Cancelled, cancelled.Status)
	require.Equal(t, run.Cancelled, e2e.Nodes(cancelled)["second/waits"].Status)

	x := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.URL.RawQuery)) }))
	defer x.Close()
	r := env.CLI(t, "task", "run", "-o", "json", "--type", "http", "--with", "url="+x.URL+"/?"+telltale)
	require.Zero(t, r.Code, r.Stdout+r.Stderr)
	task, err := raw.WorkflowService().DescribeActivityExecution(t.Context(), &workflowservice.DescribeActivityExecutionRequest{
		Namespace: env.Temporal.Namespace(), ActivityId: taskDoc(t, r).ActivityID, IncludeInput: true, IncludeOutcome: true,
	})
	require.NoError(t, err)
	require.NotEmpty(t, task.GetInput().GetPayloads())
	require.False(t, holds(t, task))

	found, of := readable(t, raw)
	require.Empty(t, found)
	require.GreaterOrEqual(t, of, 6, "two runs of two stages each")
	for _, doc := range []*run.Document{failed, cancelled} {
		replayed(t, env, doc.ID, doc.RunID)
		for _, s := range doc.Stages {
			replayed(t, env, s.WorkflowID, s.RunID)
		}
	}
}

// TestKeysAreReplaced holds that a history stays readable for as long as its key
// is named, one from before all keys too, and that else the key is named.
func TestKeysAreReplaced(t *testing.T) {
	t.Parallel()
	data, keys := t.TempDir(), payloadKeys(t, "ONE", "TWO")
	in := e2e.Inputs(map[string]string{"account": telltale})
	var before, old, fresh *run.Document

	// Each goes on where the one before has ended.
	with := func(list string, f func(t *testing.T, env *e2e.Env)) {
		require.True(t, t.Run("Keys "+list, func(t *testing.T) { f(t, sealing(t, data, keys, list)) }))
	}
	with("", func(t *testing.T, env *e2e.Env) {
		t.Helper()
		before = env.Run(t, talkative, in).Wait()
		found, _ := readable(t, bare(t, env))
		require.NotEmpty(t, found, "without keys nothing is hidden")
	})
	with("one=ONE", func(t *testing.T, env *e2e.Env) {
		t.Helper()
		old = env.Run(t, talkative, in).Wait()
	})
	with("two=TWO,one=ONE", func(t *testing.T, env *e2e.Env) {
		t.Helper()
		fresh = env.Run(t, talkative, in).Wait()
		for _, doc := range []*run.Document{before, old, fresh} {
			again := env.Follow(t, runs.Ref{ID: doc.ID, RunID: doc.RunID}).Document()
			require.Equal(t, run.Failed, again.Status)
			require.Equal(t, telltale, again.Stages[0].Steps[0].Outputs["said"])
		}
	})
	with("two=TWO", func(t *testing.T, env *e2e.Env) {
		t.Helper()
		for _, doc := range []*run.Document{before, fresh} {
			require.Equal(t, telltale, env.Follow(t, runs.Ref{ID: doc.ID, RunID: doc.RunID}).Document().Inputs["account"])
		}
		r := env.CLI(t, "status", old.ID)
		require.Equal(t, 1, r.Code, r.Stdout+r.Stderr)
		require.Contains(t, r.Stderr, `encrypted with the key "one", which payload_keys (BELAY_PAYLOAD_KEYS) does not name: here are two`)
	})
}
