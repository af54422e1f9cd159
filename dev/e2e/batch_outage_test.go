package e2e_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/chaos"
	"belay.run/dev/e2e"
	"belay.run/internal/batch"
	"belay.run/internal/redistest"
	"belay.run/internal/run"
	"belay.run/internal/task"
)

// sound checks that a batch lost nothing and recorded nothing twice.
func sound(t *testing.T, env *e2e.Env, d *batch.Document, out string, n int) {
	t.Helper()
	require.Equal(t, run.Succeeded, d.Status, "%s %v", d.Cause, d.Failures)
	require.Equal(t, n, d.Succeeded)
	require.Equal(t, map[task.Status]int{task.Succeeded: n}, statuses(t, out, napID))
	recordedOnce(t, env, d)
}

// TestBatchWithoutRedis goes on while Redis is away. Tasks with a key then run
// without their claim; once Redis is back, keys hold again.
func TestBatchWithoutRedis(t *testing.T) {
	t.Parallel()
	const n = 6_000 // most of them are left for when Redis is back, and seen to be
	redis := redistest.Start(t)
	env := e2e.Start(t, e2e.Options{RedisURL: redis.URL})
	x, out := newTallied(t), filepath.Join(t.TempDir(), "results.jsonl")
	file := x.tasks(t, n, `,"key":"k#"`)
	f := runBatch(t, env, file, "--out", out, "--rate", "500")
	f.reaches(t, env, n/20)
	redis.Stop(t)
	f.reaches(t, env, n/6)
	redis.Restart(t)
	d := f.end(t, 0)
	sound(t, env, d, out, n)
	require.LessOrEqual(t, x.reached(t, n), d.Retried, "what may have reached its target twice is counted")

	again := batchDoc(t, env.CLI(t, "batch", "run", file, "-o", "json"))
	require.Equal(t, run.Succeeded, again.Status)
	require.Positive(t, again.Duplicate, "those that ended when Redis was back")
	require.Positive(t, again.Succeeded, "the Redis that is back is empty, and knows nothing of those before")
	require.LessOrEqual(t, x.reached(t, again.Succeeded), again.Retried, "a duplicate does not reach its target")
}

// TestBatchCutOffFromTemporal loses its worker to the network for so long that
// Temporal gives its chunks to another attempt, which is then the only one.
func TestBatchCutOffFromTemporal(t *testing.T) {
	t.Parallel()
	const n = 6_000
	env := e2e.Start(t, e2e.Options{NoWorker: true})
	link, err := chaos.NewProxy(env.Temporal.Address())
	require.NoError(t, err)
	t.Cleanup(link.Close)
	env.StartWorkerAt(t, link.Addr(), t.TempDir(), "--labels", "batch")
	x, out := newTallied(t), filepath.Join(t.TempDir(), "results.jsonl")
	f := runBatch(t, env, x.tasks(t, n, ""), "--out", out, "--rate", "400")
	f.reaches(t, env, n/10)
	require.NoError(t, link.Cut())
	require.Eventually(t, func() bool {
		for _, c := range f.chunks(t, env) {
			if c.GetAttempt() > 1 {
				return true
			}
		}
		return false
	}, e2e.Patience, 100*time.Millisecond, "Temporal waits for chunks that are cut off")
	require.NoError(t, link.Heal(t.Context()))
	d := f.end(t, 0)
	sound(t, env, d, out, n)
	require.LessOrEqual(t, x.reached(t, n), d.Retried, "what may have reached its target twice is counted")
	replayBatch(t, env, "43_batch_cut_off", d, 1)
}

// TestBatchWhoseStoreIsFull waits while nothing can be recorded, whether the disk is
// full or takes no writes.
func TestBatchWhoseStoreIsFull(t *testing.T) {
	t.Parallel()
	const n = 2_000
	for name, spoil := range map[string]func(t *testing.T, dir string) (restore func()){
		"full":      fill,
		"read-only": freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			dir := filepath.Join(data, "store")
			require.NoError(t, os.Mkdir(dir, 0o700))
			smallDisk(t, dir)
			env := e2e.Start(t, e2e.Options{Data: data})
			x, out := newTallied(t), filepath.Join(t.TempDir(), "results.jsonl")
			f := runBatch(t, env, x.tasks(t, n, ""), "--out", out, "--rate", "50")
			f.reaches(t, env, n/10)
			restore := spoil(t, dir)
			f.waits(t, env, "the store")
			restore()
			d := f.end(t, 0)
			sound(t, env, d, out, n)
			// An attempt that a busy machine keeps from its heartbeats has another
			// after it, and what was under way is in doubt.
			require.LessOrEqual(t, x.reached(t, n), d.Retried, "what may have reached its target twice is counted")
		})
	}
}

// fill leaves no byte of the disk under a directory, also of what others free
// there, until it is restored.
func fill(t *testing.T, dir string) func() {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	require.NoError(t, err)
	top := func() {
		for size := 1 << 20; size > 0; size /= 2 {
			for err := error(nil); err == nil; {
				_, err = f.Write(make([]byte, size))
			}
		}
	}
	top()
	stop := make(chan struct{})
	var filling sync.WaitGroup
	filling.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				top()
			case <-stop:
				return
			}
		}
	})
	restore := sync.OnceFunc(func() {
		close(stop)
		filling.Wait()
		require.NoError(t, f.Close())
		require.NoError(t, os.Remove(path))
	})
	t.Cleanup(restore)
	return restore
}
