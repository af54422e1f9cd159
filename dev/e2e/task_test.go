package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
	"belay.run/internal/task"
)

// came is what a task came to.
type came struct {
	ActivityID string `json:"activity_id"`
	task.Result
}

func taskDoc(t *testing.T, r e2e.Result) *came {
	t.Helper()
	var d came
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &d), "%s%s", r.Stdout, r.Stderr)
	return &d
}

// TestTaskRun runs single tasks against targets that are well, flapping, slow and
// silent.
func TestTaskRun(t *testing.T) {
	t.Parallel()
	env, x := shared.Get(t), newTarget(t)
	run1 := func(args ...string) e2e.Result {
		return env.CLI(t, append([]string{"task", "run", "-o", "json"}, args...)...)
	}

	r := run1("--type", "http", "--with", "url="+x.URL+"/ok", "--key", uuid.NewString())
	require.Zero(t, r.Code, r.Stdout+r.Stderr)
	d := taskDoc(t, r)
	require.Equal(t, task.Succeeded, d.Status)
	require.EqualValues(t, 200, d.Output["status"])

	r = run1("--type", "http", "--with", "url="+x.URL+"/gone")
	require.Equal(t, 1, r.Code, r.Stdout+r.Stderr)
	require.Equal(t, run.TriggerExitCode, taskDoc(t, r).Error.Trigger)

	r = run1("--type", "http", "--with", "url="+x.URL+"/silent", "--timeout", "100ms")
	require.Equal(t, 5, r.Code, r.Stdout+r.Stderr)
	require.Equal(t, run.TriggerStepTimeout, taskDoc(t, r).Error.Trigger)

	r = run1("--type", "http", "--with", "url="+x.URL+"/flaky")
	require.Equal(t, 1, r.Code, r.Stdout+r.Stderr)
	require.Equal(t, run.TriggerDependencyUnavailable, taskDoc(t, r).Error.Trigger)
	r = run1("--type", "http", "--with", "url="+x.URL+"/flaky", "--attempts", "3")
	require.Zero(t, r.Code, r.Stdout+r.Stderr)
	require.True(t, taskDoc(t, r).Retried, "its first attempt had reached the target")

	posts := len(x.posts())
	r = run1("--type", "http", "--with", "url="+x.URL+"/hook", "--with", "body={}", "--attempts", "2")
	require.Zero(t, r.Code, r.Stdout+r.Stderr)
	sent := x.posts()[posts:]
	require.Len(t, sent, 2)
	require.NotEmpty(t, sent[0].Get("Idempotency-Key"))
	require.Equal(t, sent[0].Get("Idempotency-Key"), sent[1].Get("Idempotency-Key"), "the same for all attempts")
}

// TestTaskRunIsDoneOnce: by its request id, and by its key.
func TestTaskRunIsDoneOnce(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	var asked atomic.Int64
	x := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(x.Close)
	id, key := uuid.NewString(), uuid.NewString()
	args := []string{"task", "run", "-o", "json", "--type", "http", "--with", "url=" + x.URL, "--key", key}
	first := env.CLI(t, append(args, "--request-id", id)...)
	require.Zero(t, first.Code, first.Stderr)
	again := env.CLI(t, append(args, "--request-id", id)...)
	require.Zero(t, again.Code, again.Stderr)
	require.Equal(t, taskDoc(t, first), taskDoc(t, again))
	other := env.CLI(t, args...)
	require.Zero(t, other.Code, other.Stderr)
	require.Equal(t, task.Duplicate, taskDoc(t, other).Status)
	require.EqualValues(t, 1, asked.Load())
}

// TestTaskRunIsCancelled holds that the target is let go, and that a task which no
// worker takes ends, too.
func TestTaskRunIsCancelled(t *testing.T) {
	t.Parallel()
	env, x := shared.Get(t), newTarget(t)
	id := uuid.NewString()
	ended := make(chan e2e.Result, 1)
	go func() {
		ended <- env.CLI(t, "task", "run", "-o", "json", "--request-id", id, "--timeout", "5m", "--type", "http", "--with", "url="+x.URL+"/silent")
	}()
	require.Eventually(t, func() bool { return x.asked.Load() == 1 }, e2e.Patience, 20*time.Millisecond)
	cancelTask(t, env, run.TaskID(run.DefaultTenant, run.DefaultProject, id))
	r := <-ended
	require.Equal(t, 4, r.Code, r.Stdout+r.Stderr)
	require.Equal(t, run.TriggerUser, taskDoc(t, r).Error.Trigger)
}

// TestTaskRunWithoutAWorker says so, and ends by --wait or by a cancel.
func TestTaskRunWithoutAWorker(t *testing.T) {
	t.Parallel()
	env := e2e.Start(t, e2e.Options{NoWorker: true})
	r := env.CLI(t, "task", "run", "--type", "noop", "--wait", "6s", "-o", "json")
	require.Equal(t, 6, r.Code, r.Stdout+r.Stderr)
	require.Contains(t, r.Stderr, "no worker has taken it yet")
	require.Equal(t, task.Skipped, taskDoc(t, r).Status)

	id := uuid.NewString()
	ended := make(chan e2e.Result, 1)
	go func() { ended <- env.CLI(t, "task", "run", "--type", "noop", "--request-id", id, "-o", "json") }()
	cancelTask(t, env, run.TaskID(run.DefaultTenant, run.DefaultProject, id))
	r = <-ended
	require.Equal(t, 4, r.Code, r.Stdout+r.Stderr)
	require.Contains(t, taskDoc(t, r).Error.Message, "before it began")
}

// TestTaskRunWhoseWorkerIsKilled is not known to be done, unless it may be tried
// again.
func TestTaskRunWhoseWorkerIsKilled(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[string]int{"1": 1, "2": 0} {
		env := e2e.Start(t, e2e.Options{NoWorker: true})
		dir := t.TempDir()
		w := env.StartWorker(t, dir, "--labels", "light")
		var asked atomic.Int64
		x := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				<-r.Context().Done()
			}
		}))
		t.Cleanup(x.Close)
		ended := make(chan e2e.Result, 1)
		go func() {
			ended <- env.CLI(t, "task", "run", "-o", "json", "--timeout", "5m", "--attempts", attempts, "--type", "http", "--with", "url="+x.URL)
		}()
		require.Eventually(t, func() bool { return asked.Load() == 1 }, e2e.Patience, 20*time.Millisecond)
		w.Kill()
		env.StartWorker(t, dir, "--labels", "light")
		r := <-ended
		require.Equal(t, want, r.Code, r.Stdout+r.Stderr)
		d := taskDoc(t, r)
		if want == 0 {
			require.True(t, d.Retried)
			require.EqualValues(t, 2, asked.Load())
			continue
		}
		require.Equal(t, run.TriggerWorkerLost, d.Error.Trigger)
	}
}

// TestTaskRunHasNoSecrets that the worker does not grant to its tenant.
func TestTaskRunHasNoSecrets(t *testing.T) {
	t.Parallel()
	env, secrets := e2e.Start(t, e2e.Options{NoWorker: true}), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(secrets, "HOOK"), []byte("a secret of the worker"), 0o600))
	env.StartWorker(t, t.TempDir(), "--labels", "light", "--secrets", "dir:"+secrets, "--light-secrets", "shop=HOOK")
	var asked atomic.Int64
	x := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(x.Close)
	args := []string{"task", "run", "-o", "json", "--type", "http", "--with", "url=" + x.URL, "--with", "secret=HOOK"}
	r := env.CLI(t, args...)
	require.Equal(t, 1, r.Code, r.Stdout+r.Stderr)
	require.Equal(t, run.TriggerInvalid, taskDoc(t, r).Error.Trigger)
	require.Contains(t, taskDoc(t, r).Error.Message, "light_secrets")
	require.Zero(t, asked.Load())
	r = env.CLI(t, append(args, "--tenant", "shop")...)
	require.Zero(t, r.Code, r.Stdout+r.Stderr)
	require.EqualValues(t, 1, asked.Load())
}

// cancelTask asks the activity of a task to cancel, once it is there.
func cancelTask(t *testing.T, env *e2e.Env, id string) {
	t.Helper()
	h := env.Temporal.Client().GetActivityHandle(client.GetActivityHandleOptions{ActivityID: id})
	require.Eventually(t, func() bool { return h.Cancel(t.Context(), client.CancelActivityOptions{Reason: "enough"}) == nil },
		e2e.Patience, 20*time.Millisecond)
}
