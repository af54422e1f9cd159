package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/batch"
	"belay.run/internal/batch/control"
	"belay.run/internal/run"
	"belay.run/internal/task"
)

// tasksFile is a file of so many tasks.
func tasksFile(t *testing.T, n int, line func(i int) string) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		b.WriteString(line(i) + "\n")
	}
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

// naps are tasks that sleep for a while, each with an id of its own.
func naps(t *testing.T, n int, d time.Duration) string {
	t.Helper()
	return tasksFile(t, n, func(i int) string {
		return fmt.Sprintf(`{"id":"nap-%d","type":"noop","with":{"sleep":"%s"}}`, i, d)
	})
}

// following is a batch that a starter follows.
type following struct {
	id   string
	done chan e2e.Result
}

// runBatch has a starter run a batch, beside the test.
func runBatch(t *testing.T, env *e2e.Env, args ...string) *following {
	t.Helper()
	name := uuid.NewString()
	f := &following{id: run.BatchID(run.DefaultTenant, run.DefaultProject, name), done: make(chan e2e.Result, 1)}
	go func() {
		f.done <- env.CLI(t, append([]string{"batch", "run", "-o", "json", "--request-id", name}, args...)...)
	}()
	return f
}

// reaches waits until so many tasks have ended.
func (f *following) reaches(t *testing.T, env *e2e.Env, n int) {
	t.Helper()
	c := control.New(env.Temporal.Client(), env.Temporal.Namespace(), "")
	require.Eventually(t, func() bool {
		d, err := c.Read(t.Context(), f.id)
		return err == nil && d.Ended() >= n
	}, e2e.Patience, 50*time.Millisecond)
}

// end waits for the end and returns the document.
func (f *following) end(t *testing.T, code int) *batch.Document {
	t.Helper()
	select {
	case r := <-f.done:
		require.Equal(t, code, r.Code, "%s%s", r.Stdout, r.Stderr)
		return batchDoc(t, r)
	case <-time.After(e2e.Patience):
		require.Fail(t, "the batch has not ended")
		return nil
	}
}

func batchDoc(t *testing.T, r e2e.Result) *batch.Document {
	t.Helper()
	var d batch.Document
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &d), "%s%s", r.Stdout, r.Stderr)
	require.Equal(t, d.Total, d.Sum(), "the counts add up")
	return &d
}

// statuses counts the results in a file, which are to be in the order of ids.
func statuses(t *testing.T, path string, id func(i int) string) map[task.Status]int {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	out := map[task.Status]int{}
	i := 0
	for l := range bytes.Lines(text) {
		var r task.Result
		require.NoError(t, json.Unmarshal(l, &r))
		require.Equal(t, id(i), r.ID, "line %d", i+1)
		out[r.Status]++
		i++
	}
	return out
}

func napID(i int) string { return fmt.Sprintf("nap-%d", i) }

// recordedOnce checks that no task of a batch has two results.
func recordedOnce(t *testing.T, env *e2e.Env, d *batch.Document) {
	t.Helper()
	lines := 0
	for info, err := range env.Store.List(t.Context(), d.Folder+"/results") {
		require.NoError(t, err)
		r, err := env.Store.Get(t.Context(), info.Key)
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		seen := map[string]bool{}
		for l := range strings.Lines(string(text)) {
			place, _, isResult := strings.Cut(l, " {")
			if isResult {
				require.False(t, seen[place], "%s of %s has two results", place, info.Key)
				seen[place] = true
				lines++
			}
		}
	}
	require.Equal(t, d.Total, lines)
}

// TestBatchWhoseWorkerIsKilled loses no task and repeats none that is recorded.
func TestBatchWhoseWorkerIsKilled(t *testing.T) {
	t.Parallel()
	const n = 20_000
	env := e2e.Start(t, e2e.Options{NoWorker: true})
	dir := t.TempDir()
	w := env.StartWorker(t, dir, "--labels", "batch")
	out := filepath.Join(t.TempDir(), "results.jsonl")
	f := runBatch(t, env, naps(t, n, 20*time.Millisecond), "--out", out, "--rate", "4000")
	f.reaches(t, env, n/5)
	w.Kill()
	env.StartWorker(t, dir, "--labels", "batch")
	d := f.end(t, 0)
	require.Equal(t, run.Succeeded, d.Status)
	require.Equal(t, n, d.Succeeded)
	require.Positive(t, d.Retried, "what ran when the worker was killed is in doubt")
	require.LessOrEqual(t, d.Retried, 16*batch.ChunkDefault, "at most the window is")
	require.Equal(t, map[task.Status]int{task.Succeeded: n}, statuses(t, out, napID))
	recordedOnce(t, env, d)
	replayBatch(t, env, "41_batch_worker_lost", d, 1)
}

func TestBatchThatIsCancelled(t *testing.T) {
	t.Parallel()
	const n = 5_000
	env := shared.Get(t)
	dir := t.TempDir()
	out, notice := filepath.Join(dir, "results.jsonl"), filepath.Join(dir, "notice.json")
	f := runBatch(t, env, naps(t, n, 200*time.Millisecond), "--out", out, "--concurrency", "100", "--notify", `cp "$BELAY_NOTICE" `+notice)
	f.reaches(t, env, 200)
	r := env.CLI(t, "batch", "cancel", f.id, "--wait", "--reason", "enough", "-o", "json")
	require.Zero(t, r.Code, r.Stderr)
	d := batchDoc(t, r)
	require.Equal(t, run.Cancelled, d.Status)
	require.Equal(t, "enough", d.Cause.Message)
	require.GreaterOrEqual(t, d.Succeeded, 200)
	require.Positive(t, d.NotStarted)
	require.LessOrEqual(t, d.Failed, 100, "what ran was told to stop")
	followed := f.end(t, 4)
	require.Equal(t, d.Counts, followed.Counts)
	replayBatch(t, env, "40_batch_cancelled", d, 1)

	want := map[task.Status]int{}
	for status, count := range map[task.Status]int{
		task.Succeeded: d.Succeeded, task.Failed: d.Failed, task.Skipped: d.Skipped, batch.NotStarted: d.NotStarted,
	} {
		if count > 0 {
			want[status] = count
		}
	}
	require.Equal(t, want, statuses(t, out, napID), "the results say the same")

	var told struct {
		Event string         `json:"event"`
		Batch batch.Document `json:"batch"`
	}
	text, err := os.ReadFile(notice)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &told))
	require.Equal(t, "batch_ended", told.Event)
	require.Equal(t, d.Counts, told.Batch.Counts)

	require.Equal(t, 4, env.CLI(t, "batch", "run", naps(t, 3, 0), "--request-id", filepath.Base(f.id)).Code, "the name means that batch")
	r = env.CLI(t, "batch", "status", f.id, "-o", "json")
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, d.Counts, batchDoc(t, r).Counts)
}

// TestBatchThatIsTerminated is accounted for by what is recorded.
func TestBatchThatIsTerminated(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	f := runBatch(t, env, naps(t, 2_000, 200*time.Millisecond), "--concurrency", "50")
	f.reaches(t, env, 100)
	require.NoError(t, env.Temporal.Client().TerminateWorkflow(t.Context(), f.id, "", "enough"))
	d := f.end(t, 4)
	require.Equal(t, run.Cancelled, d.Status)
	require.GreaterOrEqual(t, d.Succeeded, 100)
	require.Positive(t, d.NotStarted)
}

func TestBatchWithTasksThatFail(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	file := tasksFile(t, 1_000, func(i int) string {
		if i%100 == 7 {
			return `{"type":"noop","with":{"sleep":"1m"},"timeout":"50ms"}`
		}
		return `{"type":"noop"}`
	})
	d := batchDoc(t, env.CLI(t, "batch", "run", file, "-o", "json", "--detach"))
	require.Equal(t, run.Running, d.Status)
	ended, err := control.New(env.Temporal.Client(), env.Temporal.Namespace(), "").Await(t.Context(), d.ID)
	require.NoError(t, err)
	require.Equal(t, run.Failed, ended.Status)
	require.Equal(t, batch.Counts{Succeeded: 990, Failed: 10}, ended.Counts)
	require.Len(t, ended.Failures, 10)
	require.Equal(t, run.TriggerStepTimeout, ended.Failures[0].Trigger)

	r := env.CLI(t, "batch", "results", d.ID)
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, 1_000, strings.Count(r.Stdout, "\n"))
	require.Equal(t, 10, strings.Count(r.Stdout, `"status":"failed"`))
}

// TestBatchHistories replays a batch that ends in peace. With -update it is so
// large that it continues as a new run of its workflow.
func TestBatchHistories(t *testing.T) {
	t.Parallel()
	n, name := 100, "42_batch"
	if *update {
		n, name = 5_001, "42_batch_continued"
	}
	env := shared.Get(t)
	d := batchDoc(t, env.CLI(t, "batch", "run", naps(t, n, 0), "-o", "json", "--chunk", "1"))
	require.Equal(t, n, d.Succeeded)
	replayBatch(t, env, name, d)
	started := replayed(t, env, d.ID, d.RunID).GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
	require.Equal(t, *update, started.GetContinuedExecutionRunId() != "")
	if *update {
		one(t, env, name+"_first", d.ID, started.GetContinuedExecutionRunId())
	}
}
