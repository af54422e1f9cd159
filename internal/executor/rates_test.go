package executor_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"belay.run/internal/executor"
	"belay.run/internal/task"
)

func TestRatesHold(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]executor.Limits{
		"whole":         {Rate: 100, Burst: 1},
		"tenant":        {Tenant: executor.Share{Rate: 100, Burst: 1}},
		"named tenant":  {Tenant: executor.Share{Rate: 1e6}, Tenants: map[string]executor.Share{"x": {Rate: 100, Burst: 1}}},
		"target":        {Target: executor.Share{Rate: 100, Burst: 1}},
		"named target":  {Target: executor.Share{Rate: 1}, Targets: map[string]executor.Share{"a:80": {Rate: 100, Burst: 1}}},
		"other writing": {Target: executor.Share{Rate: 1}, Targets: map[string]executor.Share{"A.:080": {Rate: 100, Burst: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := open(t, kinds{"fine": fine}, limits)
				tk := to("fine", "a:80")
				tk.Origin.Tenant = "x"
				tasks := many(501, tk)
				began := time.Now()
				collect(t, tasks, e.SubmitBatch(t.Context(), tasks))
				require.InDelta(t, 5, time.Since(began).Seconds(), 0.1)
			})
		})
	}
}

// What waits for one bucket holds back nobody at the others, and when it gives up
// the tokens are there for others.
func TestWaitingTakesNoTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := open(t, kinds{"fine": fine}, executor.Limits{
			Rate: 10, Burst: 1, Tenants: map[string]executor.Share{"slow": {Rate: 0.1, Burst: 1}},
		})
		slow := many(100, to("fine", "a"))
		for i := range slow {
			slow[i].Origin.Tenant, slow[i].Priority = "slow", 100
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		held := e.SubmitBatch(ctx, slow)
		synctest.Wait()
		began := time.Now()
		quick := many(50, to("fine", "a"))
		collect(t, quick, e.SubmitBatch(t.Context(), quick))
		require.InDelta(t, 5, time.Since(began).Seconds(), 0.3)
		cancel(errStopped)
		require.Equal(t, map[task.Status]int{task.Succeeded: 1, task.Skipped: 99}, collect(t, slow, held))
		time.Sleep(10 * time.Second)
		tk := to("fine", "a")
		tk.Origin.Tenant = "slow"
		began = time.Now()
		succeeds(t, e, tk)
		require.Zero(t, time.Since(began))
	})
}

func TestLimitsChangeWhileTasksRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		e := open(t, kinds{"wait": g.during(time.Second)}, executor.Limits{Rate: 0.001, Burst: 1})
		tasks := many(1000, to("wait", "a"))
		results := e.SubmitBatch(t.Context(), tasks)
		synctest.Wait()
		require.Equal(t, 999, e.Status().Waiting)
		require.NoError(t, e.SetLimits(executor.Limits{Concurrency: 100, Target: executor.Share{InFlight: -1}}))
		require.Equal(t, 100, e.Status().Running)
		require.ErrorContains(t, e.SetLimits(executor.Limits{Concurrency: -1, Rate: -1}), "concurrency")
		require.Equal(t, 100, e.Status().Limit)
		require.NoError(t, e.SetLimits(executor.Limits{Concurrency: 10}))
		time.Sleep(1500 * time.Millisecond)
		require.Equal(t, 2, e.Status().Running, "a quarter of ten")
		require.NoError(t, e.SetLimits(executor.Limits{Concurrency: 10, Tenant: executor.Share{InFlight: 1}}))
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, e.Status().Running)
		require.NoError(t, e.SetLimits(executor.Limits{Targets: map[string]executor.Share{"a": {InFlight: 500}}}))
		require.Equal(t, map[task.Status]int{task.Succeeded: 1000}, collect(t, tasks, results))
		_, most, _ := g.seen()
		require.Equal(t, 500, most)
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestLimitsOfAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, "concurrency: 5\ntimeout: 2s\ntargets: {'a:1': {rate: 3, in_flight: 2}}\nbreaker: {open: 1m}\n")
	got, err := executor.LoadLimits(path)
	require.NoError(t, err)
	require.Equal(t, executor.Limits{
		Concurrency: 5, Timeout: 2 * time.Second, Targets: map[string]executor.Share{"a:1": {Rate: 3, InFlight: 2}},
		Breaker: executor.Breaker{Open: time.Minute},
	}, got)
	for text, says := range map[string]string{
		"concurency: 5":                 "concurency",
		"timeout: 5":                    "into time.Duration",
		"rate: .nan":                    "rate",
		"a: [":                          "yaml",
		"queue: 1\n---\nqueue: 2":       "more than one document",
		"targets: {x: {in_flight: -7}}": "targets.x.in_flight",
		"targets: {'A:80': {rate: 1}, 'a.:80': {rate: 2}}": "targets.a.:80: it is the same as A:80",
		"breaker: {ratio: 2}":                              "breaker.ratio",
	} {
		write(t, path, text)
		_, err := executor.LoadLimits(path)
		require.ErrorContains(t, err, says)
	}
	write(t, path, "")
	_, err = executor.LoadLimits(path)
	require.NoError(t, err, "all defaults")
	_, err = executor.LoadLimits(path + ".none")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = executor.LoadLimits(t.TempDir())
	require.ErrorContains(t, err, "is not a regular file")
}

// However a file is replaced, its limits are set; a bad one leaves the old.
func TestAFileOfLimitsIsWatched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "limits.yaml")
	for _, version := range []string{"v1", "v2"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o700))
	}
	write(t, filepath.Join(dir, "v1", "limits.yaml"), "concurrency: 1")
	write(t, filepath.Join(dir, "v2", "limits.yaml"), "concurrency: 2")
	require.NoError(t, os.Symlink("v1", filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink("..data/limits.yaml", path))
	e := open(t, kinds{}, executor.Limits{Concurrency: 1})
	synced := func(want int) {
		t.Helper()
		require.Eventually(t, func() bool { return e.Status().Limit == want }, time.Minute, 10*time.Millisecond)
	}
	hup := make(chan os.Signal)
	ctx, cancel := context.WithCancelCause(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { executor.Watch(ctx, path, hup, e.SetLimits, zap.NewNop()) })
	t.Cleanup(watching.Wait)
	t.Cleanup(func() { cancel(errStopped) })

	require.NoError(t, os.Symlink("v2", filepath.Join(dir, "..next")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")))
	synced(2)
	write(t, filepath.Join(dir, "next"), "concurrency: 3") // the same size
	require.NoError(t, os.Rename(filepath.Join(dir, "next"), path))
	synced(3)
	write(t, path, "concurrency: none")
	hup <- os.Interrupt
	hup <- os.Interrupt // the first has been dealt with
	require.Equal(t, 3, e.Status().Limit)
	require.NoError(t, os.Remove(path))
	hup <- os.Interrupt
	hup <- os.Interrupt
	require.Equal(t, 3, e.Status().Limit)
	write(t, path, "concurrency: 4")
	hup <- os.Interrupt
	synced(4)
}

// Whatever is asked of it, each task ends once and the limits hold.
func TestNoneIsLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		synctest.Test(t, func(t *testing.T) { lossless(t, r) })
	})
}

func lossless(t *testing.T, r *rapid.T) {
	t.Helper()
	small := func(name string) int { return rapid.IntRange(1, 6).Draw(r, name) }
	limits := executor.Limits{
		Concurrency: small("concurrency"), Queue: small("queue"),
		Target:  executor.Share{InFlight: small("target"), Rate: float64(rapid.IntRange(0, 50).Draw(r, "target rate"))},
		Tenant:  executor.Share{InFlight: small("tenant"), Rate: float64(rapid.IntRange(0, 50).Draw(r, "tenant rate"))},
		Rate:    float64(rapid.IntRange(0, 100).Draw(r, "rate")),
		Breaker: executor.Breaker{Min: small("min"), Open: time.Second}, Remembered: small("remembered"), Timeout: 2 * time.Second,
	}
	var whole gauge
	e := open(t, kinds{
		"wait": whole.during(time.Second), "long": whole.during(3 * time.Second), "fine": whole.during(0), "dead": dead,
	}, limits)
	var all sync.WaitGroup
	for n := range rapid.IntRange(1, 12).Draw(r, "steps") {
		tasks := make([]task.Task, rapid.IntRange(1, 20).Draw(r, "tasks"))
		for i := range tasks {
			tasks[i] = to(rapid.SampledFrom([]string{"wait", "long", "fine", "dead", "none"}).Draw(r, "type"),
				rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(r, "host"))
			tasks[i].ID = string(rune('a'+n)) + string(rune('a'+i))
			tasks[i].Origin.Tenant = rapid.SampledFrom([]string{"x", "y"}).Draw(r, "tenant name")
			tasks[i].Priority = rapid.IntRange(-1, 1).Draw(r, "priority")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rapid.IntRange(1, 30_000).Draw(r, "patience"))*time.Millisecond)
		if rapid.Bool().Draw(r, "batch") {
			all.Go(func() {
				defer cancel()
				collect(t, tasks, e.SubmitBatch(ctx, tasks))
			})
		} else {
			for _, tk := range tasks {
				all.Go(func() {
					res, err := e.Submit(ctx, tk)
					require.True(t, err != nil || res.ID == tk.ID && res.Status != "")
				})
			}
			all.Go(func() { <-ctx.Done(); cancel() })
		}
		time.Sleep(time.Duration(rapid.IntRange(0, 1000).Draw(r, "pause")) * time.Millisecond)
	}
	all.Wait()
	_, most, _ := whole.seen()
	require.LessOrEqual(t, most, limits.Concurrency)
	s := e.Status()
	require.Zero(t, s.Waiting+s.Running)
	_, _, lanes := e.Remembered()
	require.Zero(t, lanes)
}
