package e2e_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"belay.run/activities"
	"belay.run/dev/e2e"
	"belay.run/internal/logs"
	"belay.run/internal/run"
)

// TestJanitorSchedule holds that a worker has the janitor scheduled, and that
// its passes run.
func TestJanitorSchedule(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	handle := env.Temporal.Client().ScheduleClient().GetHandle(t.Context(), activities.JanitorSchedule)
	require.Eventually(t, func() bool {
		d, err := handle.Describe(t.Context())
		return err == nil && d.Info.NumActions > 0
	}, e2e.Patience, 200*time.Millisecond, "the janitor does not run")
	d, err := handle.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, 15*time.Second, d.Schedule.Spec.Intervals[0].Every)
}

// reaped reports whether what a run, or a stage of it, left was released whole.
func reaped(t *testing.T, env *e2e.Env, runKey, node string) bool {
	t.Helper()
	d, err := env.Temporal.Client().DescribeWorkflowExecution(t.Context(), run.ReapID(runKey, node), "")
	if _, unknown := errors.AsType[*serviceerror.NotFound](err); unknown {
		return false
	}
	require.NoError(t, err)
	return d.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
}

// janitorPass runs the janitor once. Other tests leave it something that it cannot
// release.
func janitorPass(t *testing.T, env *e2e.Env) {
	t.Helper()
	got := env.CLI(t, "janitor", "run", "-o", "json")
	require.Contains(t, []int{0, 1}, got.Code, got.Stderr+got.Stdout)
	var res activities.JanitorResult
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &res), got.Stderr+got.Stdout)
}

// TestJanitorReapsATerminatedRun terminates a run and its stage, so that no code
// of theirs runs any more: what they had is given back all the same, and that is
// confirmed.
func TestJanitorReapsATerminatedRun(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	mark := seconds(341)
	r := env.Run(t, `
version: 1
name: terminated
stages: [{name: s, steps: [{name: a, grace_period: 1s, run: "pwd; sleep `+mark+`"}]}]
`)
	r.WaitLog("s/a", "/")
	doc := r.WaitNode("s/a", run.Running)
	stage := doc.Stages[0]
	c := env.Temporal.Client()
	require.NoError(t, c.TerminateWorkflow(t.Context(), r.ID, r.RunID, "enough"))
	require.NoError(t, c.TerminateWorkflow(t.Context(), stage.WorkflowID, stage.RunID, "enough"))

	require.Eventually(t, func() bool {
		janitorPass(t, env)
		return reaped(t, env, doc.RunKey, "")
	}, e2e.Patience, 500*time.Millisecond, "the run is not reaped")
	requireGone(t, mark)
	got := env.CLI(t, "resources", r.ID, "-o", "json")
	require.Equal(t, 0, got.Code, got.Stderr)
	var held struct {
		Resources []struct{ Kind, Name, State string }
	}
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &held))
	for _, h := range held.Resources {
		require.Equal(t, "released", h.State, "%v", h)
	}
	replayReap(t, env, "31_terminated", doc.RunKey, "")
}

// TestAStageThatIsTerminatedAloneIsReaped: the run hears of it, has what the
// stage left given back, and closes after that.
func TestAStageThatIsTerminatedAloneIsReaped(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	mark := seconds(342)
	dir := t.TempDir()
	r := env.Run(t, `
version: 1
name: alone
stages:
  - name: s
    steps: [{name: a, grace_period: 1s, run: "pwd > `+filepath.Join(dir, "where")+`; echo ready; sleep `+mark+`"}]
    finally: [{name: tidy, run: "echo tidied"}]
finally: [{name: report, run: "echo reported"}]
`)
	r.WaitLog("s/a", "ready")
	doc := r.WaitNode("s/a", run.Running)
	require.NoError(t, env.Temporal.Client().TerminateWorkflow(t.Context(), doc.Stages[0].WorkflowID, "", "enough"))
	doc = r.Wait()
	requireGone(t, mark)
	require.Equal(t, run.Cancelled, doc.Status)
	nodes := e2e.Nodes(doc)
	require.Equal(t, run.Succeeded, nodes["finally/report"].Status)
	require.Equal(t, run.Cancelled, nodes["s/a"].Status, "it stays in the record, as what became of it")
	require.Equal(t, "terminated: enough", nodes["s/a"].Cause.Message)
	require.Equal(t, run.Skipped, nodes["s/tidy"].Status)
	require.Empty(t, r.Log("s/tidy"), "no code of the stage runs after a terminate")
	where, err := os.ReadFile(filepath.Join(dir, "where"))
	require.NoError(t, err)
	require.NoDirExists(t, string(where[:len(where)-1]), "the workspace is still there")
	require.True(t, reaped(t, env, doc.RunKey, "s"))
	replay(t, env, "32_stage_terminated", doc)
	replayReap(t, env, "32_stage_terminated", doc.RunKey, "s")
}

// notices is somebody who is told of leaks.
type notices struct {
	mu  sync.Mutex
	got []activities.Notice
}

func (n *notices) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var doc activities.Notice
	if err := json.NewDecoder(r.Body).Decode(&doc); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.got = append(n.got, doc)
}

// events are what they were told, in order: event, kind and name.
func (n *notices) events() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, doc := range n.got {
		for _, r := range doc.Resources {
			out = append(out, doc.Event+" "+r.Kind+" "+r.Name)
		}
	}
	return out
}

// TestWhatNobodyCanReleaseIsLeakedToldAndReleasedLater kills the only worker that
// could release something, and terminates the run: it leaks, which people are
// told, until another such worker comes.
func TestWhatNobodyCanReleaseIsLeakedToldAndReleasedLater(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	told := &notices{}
	pager := httptest.NewServer(told)
	t.Cleanup(pager.Close)
	window := filepath.Join(t.TempDir(), "window")
	w := env.StartWorker(t, t.TempDir(), "--labels", "leaky")
	r := env.Run(t, `
version: 1
name: leaky
notify: {webhook: "`+pager.URL+`/hook"}
stages:
  - name: s
    runs_on: leaky
    steps:
      - name: a
        grace_period: 1s
        run: "echo ready; sleep `+seconds(343)+`"
        resources:
          - {kind: custom, name: window, acquire: "touch `+window+`; echo id=w1", release: "rm -f `+window+`"}
`)
	r.WaitLog("s/a", "ready")
	require.FileExists(t, window)
	doc := r.WaitNode("s/a", run.Running)
	w.Kill()
	c := env.Temporal.Client()
	require.NoError(t, c.TerminateWorkflow(t.Context(), r.ID, r.RunID, "enough"))
	require.NoError(t, c.TerminateWorkflow(t.Context(), doc.Stages[0].WorkflowID, doc.Stages[0].RunID, "enough"))

	leaked := func() string {
		got := env.CLI(t, "resources", "--leaked", "-o", "json")
		require.Equal(t, 0, got.Code, got.Stderr)
		return got.Stdout
	}
	require.Eventually(t, func() bool { return slices.Contains(told.events(), "leaked custom window") }, e2e.Patience, 500*time.Millisecond)
	require.Contains(t, leaked(), r.ID)
	require.FileExists(t, window)

	env.StartWorker(t, t.TempDir(), "--labels", "leaky")
	require.Eventually(t, func() bool {
		janitorPass(t, env)
		return slices.Contains(told.events(), "released custom window")
	}, e2e.Patience, time.Second)
	require.NoFileExists(t, window)
	require.NotContains(t, leaked(), `"window"`)
	about := slices.DeleteFunc(slices.Clone(told.events()), func(e string) bool { return !strings.HasSuffix(e, "custom window") })
	require.Len(t, about, 2, "each is told once: %v", told.events())
}

// TestJanitorRemovesWhatIsTooOld ages the logs of a run that has closed and those
// of one that is open: only the first go.
func TestJanitorRemovesWhatIsTooOld(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	file := func(name, script string) string {
		return "\nversion: 1\nname: " + name + "\nstages: [{name: s, steps: [{name: a, run: \"" + script + "\"}]}]\n"
	}
	closed, open := env.Run(t, file("aged", "echo done")), env.Run(t, file("ageing", "echo ready; sleep "+seconds(343)))
	open.WaitLog("s/a", "ready")
	closedKey, openKey := closed.Wait().RunKey, open.WaitNode("s/a", run.Running).RunKey
	dir := strings.TrimPrefix(env.StoreURL(), "file://")
	old := time.Now().Add(-100 * 24 * time.Hour)
	age := func(runKey string) {
		found := 0
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.Contains(path, runKey) || d.IsDir() {
				return nil //nolint:nilerr // other tests remove what they made
			}
			found++
			return os.Chtimes(path, old, old)
		}))
		require.Positive(t, found)
	}
	age(closedKey)
	age(openKey)
	got := env.CLI(t, "janitor", "run", "-o", "json")
	var res activities.JanitorResult
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &res), got.Stderr+got.Stdout)
	require.NotNil(t, res.Expired, "%v", res.Notes)
	require.Positive(t, res.Expired.Logs)
	sources, err := env.Logs.Sources(t.Context(), closedKey, logs.Filter{})
	require.NoError(t, err)
	require.Empty(t, sources)
	sources, err = env.Logs.Sources(t.Context(), openKey, logs.Filter{})
	require.NoError(t, err)
	require.NotEmpty(t, sources, "of what is open nothing is removed")
	open.Cancel("enough")
	open.Wait()
}
