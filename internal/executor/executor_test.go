package executor_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
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

func TestRunsATask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		e := open(t, kinds{"wait": g.during(50 * time.Millisecond)}, executor.Limits{})
		r := succeeds(t, e, to("wait", "a"))
		require.Equal(t, task.Result{
			ID: "wait-a", Type: "wait", Status: task.Succeeded, Output: task.Output{"took": "50ms"}, Took: 50 * time.Millisecond,
		}, r)
		require.Equal(t, uint64(1), e.Status().Done)
		_, _, lanes := e.Remembered()
		require.Zero(t, lanes)
	})
}

func TestWhatIsWrongWithATaskIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	e := open(t, kinds{"fine": fine}, executor.Limits{})
	for name, tk := range map[string]task.Task{
		"no such type":     to("bad", "a"),
		"key without home": {Type: "fine", Key: "k"},
		"timeout":          {Type: "fine", Timeout: -1},
		"priority":         {Type: "fine", Priority: 101},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := e.Submit(t.Context(), tk)
			var f *task.Failure
			require.ErrorAs(t, err, &f)
			require.Equal(t, run.TriggerInvalid, f.Trigger)
			batch := []task.Task{to("fine", "a"), tk}
			require.Equal(t, map[task.Status]int{task.Succeeded: 1, task.Failed: 1}, collect(t, batch, e.SubmitBatch(t.Context(), batch)))
		})
	}
}

func TestNoMoreRunAtOnceThanMay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		e := open(t, kinds{"wait": g.during(50 * time.Millisecond)}, executor.Limits{Concurrency: 10, Target: executor.Share{InFlight: -1}})
		began := time.Now()
		tasks := many(1000, to("wait", "a"))
		require.Equal(t, map[task.Status]int{task.Succeeded: 1000}, collect(t, tasks, e.SubmitBatch(t.Context(), tasks)))
		_, most, _ := g.seen()
		require.Equal(t, 10, most)
		require.Equal(t, 5*time.Second, time.Since(began), "and no fewer either")
	})
}

func TestResultsComeAsTasksEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		e := open(t, kinds{"slow": g.during(3 * time.Second), "quick": g.during(time.Second)}, executor.Limits{})
		results := e.SubmitBatch(t.Context(), []task.Task{to("slow", "a"), to("quick", "a")})
		require.Equal(t, "quick-a", (<-results).ID)
		require.Equal(t, "slow-a", (<-results).ID)
		_, more := <-results
		require.False(t, more)
		_, more = <-e.SubmitBatch(t.Context(), nil)
		require.False(t, more)
	})
}

func TestAFullQueueRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		e := open(t, kinds{"wait": g.during(time.Second)}, executor.Limits{
			Concurrency: 10, Queue: 100, Target: executor.Share{InFlight: -1, Queue: -1},
		})
		var refused atomic.Int64
		var after atomic.Int64
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				_, err := e.Submit(t.Context(), to("wait", "a"))
				if err != nil {
					r := refusal(t, err)
					require.Equal(t, executor.QueueFull, r.Reason)
					require.Contains(t, r.Error(), "full")
					after.Store(int64(r.RetryAfter))
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		require.Equal(t, int64(90), refused.Load())
		require.Equal(t, int64(time.Second), after.Load(), "nobody knows yet how fast it drains")
		require.Equal(t, 100, e.Status().Waiting)

		time.Sleep(5500 * time.Millisecond) // 10 a second for a while
		for range 50 {
			all.Go(func() {
				_, err := e.Submit(t.Context(), to("wait", "a"))
				require.NoError(t, err)
			})
		}
		synctest.Wait()
		_, err := e.Submit(t.Context(), to("wait", "a"))
		require.InDelta(t, 10, refusal(t, err).RetryAfter.Seconds(), 6, "100 at about 10 a second")
		all.Wait()
		require.Zero(t, e.Status().Waiting)
	})
}

func TestHigherPriorityGoesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		e := open(t, kinds{"note": func(ctx context.Context, o task.Origin) (task.Output, error) {
			mu.Lock()
			order = append(order, o.Node)
			mu.Unlock()
			return nil, pause.For(ctx, time.Second)
		}}, executor.Limits{Concurrency: 1})
		var all sync.WaitGroup
		for _, tk := range []struct {
			node, target string
			priority     int
		}{{"first", "a", 0}, {"low", "a", -1}, {"usual", "b", 0}, {"usual too", "a", 0}, {"high", "c", 1}, {"highest", "b", 100}} {
			all.Go(func() {
				work := to("note", tk.target)
				work.Priority, work.Origin.Node = tk.priority, tk.node
				succeeds(t, e, work)
			})
			synctest.Wait()
		}
		all.Wait()
		require.Equal(t, []string{"first", "highest", "high", "usual", "usual too", "low"}, order)
	})
}

// A target that answers nothing has a part of the slots and of the queue.
func TestASlowTargetSlowsNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slow, quick gauge
		end := make(chan struct{})
		e := open(t, kinds{"slow": slow.until(end), "quick": quick.during(10 * time.Millisecond)},
			executor.Limits{Concurrency: 8, Queue: 40, Timeout: time.Hour})
		var all sync.WaitGroup
		refused := 0
		for range 20 {
			all.Go(func() {
				if _, err := e.Submit(t.Context(), to("slow", "s")); err != nil {
					require.Equal(t, executor.TargetFull, refusal(t, err).Reason)
					refused++
				}
			})
			synctest.Wait()
		}
		now, _, _ := slow.seen()
		require.Equal(t, 2, now)
		require.Equal(t, 8, refused, "a quarter of the queue is for one target")
		batch := many(500, to("slow", "s"))
		ctx, cancel := context.WithCancelCause(t.Context())
		results := e.SubmitBatch(ctx, batch)
		synctest.Wait()

		began := time.Now()
		tasks := append(many(300, to("quick", "q1")), many(300, to("quick", "q2"))...)
		for i := range tasks[300:] {
			tasks[300+i].ID += "-too"
		}
		collect(t, tasks, e.SubmitBatch(t.Context(), tasks))
		require.Equal(t, 1500*time.Millisecond, time.Since(began), "150 rounds of two for each of two targets")
		_, most, _ := quick.seen()
		require.Equal(t, 4, most)
		now, _, _ = slow.seen()
		require.Equal(t, 2, now)

		cancel(errStopped)
		require.Equal(t, map[task.Status]int{task.Skipped: 500}, collect(t, batch, results))
		close(end)
		all.Wait()
	})
}

func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		e := open(t, kinds{"wait": g.during(time.Second)}, executor.Limits{Concurrency: 1, Breaker: executor.Breaker{Min: 1}})
		ctx, cancel := context.WithCancelCause(t.Context())
		results := make(chan task.Result, 2)
		for range 2 {
			go func() {
				r, err := e.Submit(ctx, to("wait", "a"))
				if err == nil {
					results <- r
				}
			}()
			synctest.Wait()
		}
		began := time.Now()
		cancel(errStopped)
		got := map[task.Status]run.Trigger{}
		for range 2 {
			r := <-results
			got[r.Status] = r.Error.Trigger
		}
		require.Equal(t, map[task.Status]run.Trigger{task.Skipped: run.TriggerUser, task.Failed: run.TriggerUser}, got)
		require.Zero(t, time.Since(began))
		_, _, total := g.seen()
		require.Equal(t, 1, total)
		r, err := e.Submit(ctx, to("wait", "a"))
		require.NoError(t, err)
		require.Equal(t, task.Skipped, r.Status)
		require.Equal(t, executor.Breakers{Closed: 1}, e.Status().Breakers, "that says nothing about the target")
		succeeds(t, e, to("wait", "a"))
	})
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		stuck := make(chan struct{})
		e := open(t, kinds{
			"wait": g.during(time.Minute),
			"lies": func(context.Context, task.Origin) (task.Output, error) { <-stuck; return nil, nil },
			"says": func(ctx context.Context, _ task.Origin) (task.Output, error) {
				<-ctx.Done()
				return nil, task.Faultf("dial: %v", ctx.Err())
			},
		}, executor.Limits{Concurrency: 4})
		for kind, took := range map[string]time.Duration{"wait": 5 * time.Second, "says": 5 * time.Second} {
			r := fails(t, e, to(kind, kind), run.TriggerStepTimeout)
			require.Equal(t, took, r.Took)
			require.True(t, r.Error.Fault)
			require.True(t, r.Error.Retryable)
			require.Contains(t, r.Error.Message, "no answer from "+kind+" within 5s")
		}
		own := to("wait", "a")
		own.Timeout = time.Second
		require.Equal(t, time.Second, fails(t, e, own, run.TriggerStepTimeout).Took)

		// A job that does not return is given up on, and keeps its slot.
		r := fails(t, e, to("lies", "b"), run.TriggerStepTimeout)
		require.InDelta(t, 6, r.Took.Seconds(), 0.5)
		require.Contains(t, r.Error.Message, "did not end")
		require.Equal(t, 1, e.Status().Running)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := e.Submit(ctx, to("lies", "c"))
		require.NoError(t, err)
		require.Equal(t, run.TriggerStepTimeout, r.Error.Trigger)
		require.InDelta(t, 2, r.Took.Seconds(), 0.5, "sooner if nobody waits any more")
		require.False(t, r.Error.Fault)
		close(stuck)
		synctest.Wait()
		require.Zero(t, e.Status().Running)
	})
}

func TestJobsMayDoAnything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var none *task.Failure
		var nothing map[string]int
		e := open(t, kinds{
			"fine":  fine,
			"panic": func(context.Context, task.Origin) (task.Output, error) { panic("secret") },
			"bug":   func(context.Context, task.Origin) (task.Output, error) { nothing["a"] = 1; return nil, nil },
			"gone":  func(context.Context, task.Origin) (task.Output, error) { runtime.Goexit(); return nil, nil },
			"none":  func(context.Context, task.Origin) (task.Output, error) { return nil, none },
			"plain": func(context.Context, task.Origin) (task.Output, error) { return nil, errStopped },
			"large": func(context.Context, task.Origin) (task.Output, error) {
				return task.Output{"body": strings.Repeat("x", 65<<10)}, nil
			},
		}, executor.Limits{Concurrency: 1, Breaker: executor.Breaker{Min: 1}})
		for kind, says := range map[string]string{"panic": "the log of the worker", "bug": "nil map", "gone": "ended its goroutine"} {
			r := fails(t, e, to(kind, "a"), run.TriggerProcessCrashed)
			require.Contains(t, r.Error.Message, says)
			require.NotContains(t, r.Error.Message, "secret")
			require.False(t, r.Error.Retryable)
		}
		succeeds(t, e, to("none", "a"))
		require.Equal(t, "the test stopped it", fails(t, e, to("plain", "a"), run.TriggerExitCode).Error.Message)
		require.Nil(t, fails(t, e, to("large", "a"), run.TriggerLimitExceeded).Output)
		require.Equal(t, executor.Breakers{Closed: 1}, e.Status().Breakers, "none of it is the target's fault")
		batch := append(many(50, to("gone", "a")), many(50, to("fine", "a"))...)
		require.Equal(t, map[task.Status]int{task.Failed: 50, task.Succeeded: 50}, collect(t, batch, e.SubmitBatch(t.Context(), batch)))
	})
}

func TestCloseLetsAllEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		e := open(t, kinds{"wait": g.during(time.Second)}, executor.Limits{Concurrency: 10, Target: executor.Share{InFlight: -1}})
		tasks := many(1000, to("wait", "a"))
		results := e.SubmitBatch(t.Context(), tasks)
		closed := make(chan error)
		go func() { closed <- e.Close(t.Context()) }()
		synctest.Wait()
		require.Equal(t, "closing", e.Status().Status)
		_, err := e.Submit(t.Context(), to("wait", "a"))
		require.Equal(t, executor.Closing, refusal(t, err).Reason)
		late := many(3, to("wait", "late"))
		require.Equal(t, map[task.Status]int{task.Skipped: 3}, collect(t, late, e.SubmitBatch(t.Context(), late)))
		require.NoError(t, <-closed)
		require.Equal(t, map[task.Status]int{task.Succeeded: 1000}, collect(t, tasks, results))
		require.Equal(t, "closed", e.Status().Status)
		require.NoError(t, e.Close(t.Context()))
	})
}

func TestCloseHandsBackWhatItHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		stuck := make(chan struct{})
		e, err := executor.New(executor.Config{Registry: kinds{
			"wait": g.during(time.Hour),
			"lies": func(context.Context, task.Origin) (task.Output, error) { <-stuck; return nil, nil },
		}, Limits: executor.Limits{Concurrency: 10, Timeout: time.Hour, Target: executor.Share{InFlight: -1}}})
		require.NoError(t, err)
		tasks := append(many(1, to("lies", "a")), many(99, to("wait", "a"))...)
		results := e.SubmitBatch(t.Context(), tasks)
		synctest.Wait()
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errStopped)
		defer cancel()
		began := time.Now()
		err = e.Close(ctx)
		require.ErrorIs(t, err, errStopped)
		require.ErrorContains(t, err, "90 light tasks that waited were skipped, 10 that ran were stopped")
		require.Equal(t, 11*time.Second, time.Since(began), "one job does not return")
		count := map[task.Status]int{}
		for r := range results {
			count[r.Status]++
			require.Equal(t, run.TriggerMaintenance, r.Error.Trigger)
			require.True(t, r.Error.Retryable)
		}
		require.Equal(t, map[task.Status]int{task.Skipped: 90, task.Failed: 10}, count)
		close(stuck)
	})
}

func TestFilesBoundWhatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gauge
		e := with(t, executor.Config{
			Registry: kinds{"wait": g.during(time.Second)}, Limits: executor.Limits{Target: executor.Share{InFlight: -1}},
		}.WithFiles(7))
		tasks := many(100, to("wait", "a"))
		collect(t, tasks, e.SubmitBatch(t.Context(), tasks))
		_, most, _ := g.seen()
		require.Equal(t, 7, most)
		require.Equal(t, 7, e.Status().Concurrency)
		require.Equal(t, 1000, e.Status().Limit)
	})
	e := open(t, kinds{}, executor.Limits{Concurrency: 1_000_000})
	require.Less(t, e.Status().Concurrency, 1_000_000_000)
	require.Positive(t, e.Status().Concurrency)
}

func TestFewerRunWhileTheCPUIsShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var delay atomic.Int64
		var g gauge
		e := with(t, executor.Config{
			Registry: kinds{"wait": g.during(100 * time.Millisecond)},
			Limits:   executor.Limits{Concurrency: 100, Target: executor.Share{InFlight: -1}},
		}.WithDelays(func() time.Duration { return time.Duration(delay.Load()) }))
		tasks := many(100_000, to("wait", "a"))
		ctx, cancel := context.WithCancelCause(t.Context())
		results := e.SubmitBatch(ctx, tasks)
		time.Sleep(3100 * time.Millisecond) // between two looks
		require.Equal(t, 100, e.Status().Running)
		delay.Store(int64(200 * time.Millisecond))
		time.Sleep(3 * time.Second)
		require.InDelta(t, 45, e.Status().Concurrency, 20, "three looks")
		time.Sleep(time.Minute)
		require.Equal(t, 10, e.Status().Concurrency, "never fewer than a tenth")
		require.Equal(t, 200*time.Millisecond, e.Status().Delay)
		delay.Store(0)
		time.Sleep(30 * time.Second)
		require.Equal(t, 100, e.Status().Concurrency)
		cancel(errors.New("enough"))
		collect(t, tasks, results)
	})
}
