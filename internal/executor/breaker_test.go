package executor_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/executor"
	"belay.run/internal/pause"
	"belay.run/internal/run"
	"belay.run/internal/task"
)

// crowd has n callers submit at the same time, and counts how they fared.
func crowd(t *testing.T, e *executor.Executor, n int, tk task.Task) map[task.Status]int {
	t.Helper()
	var mu sync.Mutex
	count := map[task.Status]int{}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			r, err := e.Submit(t.Context(), tk)
			require.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			count[r.Status]++
		})
	}
	all.Wait()
	return count
}

func TestExactlyTheProbesReachATargetThatWasNotWell(t *testing.T) {
	t.Parallel()
	for name, inFlight := range map[string]int{"all at once": -1, "few at a time": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var g gauge
				var well atomic.Bool
				e := open(t, kinds{"probe": func(ctx context.Context, o task.Origin) (task.Output, error) {
					if err := pause.For(ctx, 10*time.Millisecond); err != nil {
						return nil, err
					}
					return flapping(&well, &g)(ctx, o)
				}}, executor.Limits{Concurrency: 2000, Target: executor.Share{InFlight: inFlight}})
				tk := to("probe", "a")
				for range 20 {
					fails(t, e, tk, run.TriggerDependencyUnavailable)
				}
				require.Equal(t, executor.Breakers{Open: 1}, e.Status().Breakers)
				_, _, before := g.seen()
				require.Equal(t, 20, before)
				require.Equal(t, map[task.Status]int{task.Failed: 1000}, crowd(t, e, 1000, tk))
				_, _, total := g.seen()
				require.Equal(t, before, total, "none while it is open")

				time.Sleep(6 * time.Second)
				require.Equal(t, map[task.Status]int{task.Failed: 1000}, crowd(t, e, 1000, tk))
				_, _, total = g.seen()
				require.LessOrEqual(t, total, before+3)
				if inFlight < 0 {
					require.Equal(t, before+3, total)
				}
				before = total

				time.Sleep(6 * time.Second)
				well.Store(true)
				if inFlight < 0 {
					require.Equal(t, map[task.Status]int{task.Failed: 997, task.Succeeded: 3}, crowd(t, e, 1000, tk))
					_, _, total = g.seen()
					require.Equal(t, before+3, total)
				} else {
					crowd(t, e, 1000, tk)
				}
				require.Equal(t, executor.Breakers{Closed: 1}, e.Status().Breakers)
				require.Equal(t, map[task.Status]int{task.Succeeded: 1000}, crowd(t, e, 1000, tk))
			})
		})
	}
}

func TestACancelledProbeIsNoProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		e := open(t, kinds{"dead": dead, "wait": g.during(time.Second)}, executor.Limits{Breaker: executor.Breaker{Min: 1}})
		fails(t, e, to("dead", "a"), run.TriggerDependencyUnavailable)
		time.Sleep(6 * time.Second)
		ctx, cancel := context.WithCancelCause(t.Context())
		batch := many(3, to("wait", "a"))
		results := e.SubmitBatch(ctx, batch)
		synctest.Wait()
		fails(t, e, to("wait", "a"), run.TriggerDependencyUnavailable)
		cancel(errStopped)
		require.Equal(t, map[task.Status]int{task.Failed: 3}, collect(t, batch, results))
		require.Equal(t, map[task.Status]int{task.Succeeded: 3, task.Failed: 5}, crowd(t, e, 8, to("wait", "a")))
		require.Equal(t, executor.Breakers{Closed: 1}, e.Status().Breakers)
	})
}

// What waits for a target is told at once when its circuit opens, and nobody else
// waits for it.
func TestADeadTargetSlowsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		e := open(t, kinds{
			"dead": func(ctx context.Context, o task.Origin) (task.Output, error) {
				if err := pause.For(ctx, time.Second); err != nil {
					return nil, err
				}
				return dead(ctx, o)
			},
			"fine": g.during(10 * time.Millisecond),
		}, executor.Limits{Concurrency: 100})
		bad, good := many(10_000, to("dead", "d")), many(10_000, to("fine", "f"))
		for i := range bad {
			bad[i].Origin.Tenant = []string{"x", "y", "z"}[i%3]
		}
		began := time.Now()
		failed := e.SubmitBatch(t.Context(), bad)
		worked := e.SubmitBatch(t.Context(), good)
		require.Equal(t, map[task.Status]int{task.Succeeded: 10_000}, collect(t, good, worked))
		require.Equal(t, 4*time.Second, time.Since(began), "a quarter of the slots all the time")
		require.Equal(t, map[task.Status]int{task.Failed: 10_000}, collect(t, bad, failed))
		require.Equal(t, 4*time.Second, time.Since(began))
		require.Equal(t, []string{"d"}, e.Status().Open)
	})
}

func TestTheRatioDecides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := open(t, kinds{"dead": dead, "fine": fine}, executor.Limits{Breaker: executor.Breaker{Ratio: 0.5, Min: 10}})
		for range 30 {
			succeeds(t, e, to("fine", "a"))
			succeeds(t, e, to("fine", "a"))
			fails(t, e, to("dead", "a"), run.TriggerDependencyUnavailable)
		}
		require.Equal(t, executor.Breakers{Closed: 1}, e.Status().Breakers)
		time.Sleep(12 * time.Second) // beyond the window
		for range 9 {
			fails(t, e, to("dead", "a"), run.TriggerDependencyUnavailable)
		}
		require.Empty(t, e.Status().Open, "too few to say")
		fails(t, e, to("dead", "a"), run.TriggerDependencyUnavailable)
		require.Equal(t, []string{"a"}, e.Status().Open)
		require.NoError(t, e.SetLimits(executor.Limits{Breaker: executor.Breaker{Off: true}}))
		require.Empty(t, e.Status().Open)
		succeeds(t, e, to("fine", "a"))
	})
}

func TestABoundedNumberOfTargetsIsRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := open(t, kinds{"dead": dead}, executor.Limits{Remembered: 10, Breaker: executor.Breaker{Min: 1}})
		for i := range 1000 {
			tk := to("dead", string(rune('a'+i)))
			tk.Origin.Tenant = string(rune('a' + i))
			fails(t, e, tk, run.TriggerDependencyUnavailable)
		}
		targets, tenants, lanes := e.Remembered()
		require.Equal(t, []int{10, 10, 0}, []int{targets, tenants, lanes})
		require.Len(t, e.Status().Open, 10)
	})
}
