package executor_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/dedup"
	"belay.run/internal/executor"
	"belay.run/internal/redistest"
	"belay.run/internal/run"
	"belay.run/internal/task"
)

// claimed returns an executor that claims keys in a Redis.
func claimed(t *testing.T, rdb redis.UniversalClient, k kinds) (*executor.Executor, *dedup.Claims) {
	t.Helper()
	claims, err := dedup.Open(rdb, dedup.Options{})
	require.NoError(t, err)
	t.Cleanup(claims.Close)
	return with(t, executor.Config{Registry: k, Claims: claims, Limits: executor.Limits{Target: executor.Share{InFlight: -1}}}), claims
}

func keyed(kind, key string) task.Task {
	tk := to(kind, "a")
	tk.Key = key
	tk.Origin.Tenant, tk.Origin.Project = "acme", "web"
	return tk
}

func TestAKeyIsDoneOnce(t *testing.T) {
	t.Parallel()
	var g gauge
	hold := make(chan struct{})
	e, _ := claimed(t, redistest.Start(t).Client(t), kinds{
		"fine": func(_ context.Context, o task.Origin) (task.Output, error) {
			return task.Output{"key": o.IdempotencyKey}, nil
		},
		"dead": dead, "hold": g.until(hold),
	})
	first := succeeds(t, e, keyed("fine", "k"))
	require.Len(t, first.Output["key"], 32)
	r, err := e.Submit(t.Context(), keyed("fine", "k"))
	require.NoError(t, err)
	require.Equal(t, task.Duplicate, r.Status)
	require.Equal(t, first.Output, r.Output)
	elsewhere := keyed("fine", "k")
	elsewhere.Origin.Tenant = "other"
	succeeds(t, e, elsewhere)

	// A failed one frees its key before anybody hears of it.
	for range 3 {
		fails(t, e, keyed("dead", "f"), run.TriggerDependencyUnavailable)
	}
	succeeds(t, e, keyed("fine", "f"))

	// One that is under way is one that is done, without an output.
	var all sync.WaitGroup
	all.Go(func() { succeeds(t, e, keyed("hold", "h")) })
	require.Eventually(t, func() bool { now, _, _ := g.seen(); return now > 0 }, time.Minute, time.Millisecond)
	r, err = e.Submit(t.Context(), keyed("fine", "h"))
	require.NoError(t, err)
	require.Equal(t, task.Duplicate, r.Status)
	require.Empty(t, r.Output)
	close(hold)
	all.Wait()
}

func TestKeysInABatch(t *testing.T) {
	t.Parallel()
	e, _ := claimed(t, redistest.Start(t).Client(t), kinds{"fine": fine})
	tasks := many(1000, keyed("fine", ""))
	for i := range tasks {
		tasks[i].Key, tasks[i].Origin.Run = tasks[i/2*2].ID, "batch-1"
	}
	require.Equal(t, map[task.Status]int{task.Succeeded: 500, task.Duplicate: 500}, collect(t, tasks, e.SubmitBatch(t.Context(), tasks)))
	// The same run asks again: those that it did are done.
	require.Equal(t, map[task.Status]int{task.Succeeded: 500, task.Duplicate: 500}, collect(t, tasks, e.SubmitBatch(t.Context(), tasks)))
}

func TestTheClaimOfADeadProcessIsTakenOver(t *testing.T) {
	t.Parallel()
	var got task.Origin
	e, claims := claimed(t, redistest.Start(t).Client(t), kinds{"fine": func(_ context.Context, o task.Origin) (task.Output, error) {
		got = o
		return nil, nil
	}})
	v, err := claims.Claim(t.Context(), dedup.Claim{
		Key: dedup.Key{Tenant: "acme", Project: "web", Name: "k"}, Owner: dedup.Owner{RunKey: "gone"}, Lease: time.Microsecond,
	})
	require.NoError(t, err)
	require.True(t, succeeds(t, e, keyed("fine", "k")).Retried)
	require.Equal(t, dedup.IdempotencyKey(v.Record), got.IdempotencyKey, "nobody knows how far it had come")
}

func TestWithoutRedisTasksRunUnclaimed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	e, _ := claimed(t, server.Client(t), kinds{"fine": fine})
	succeeds(t, e, keyed("fine", "k"))
	server.Stop(t)
	tasks := many(100, keyed("fine", "k"))
	require.Equal(t, map[task.Status]int{task.Succeeded: 100}, collect(t, tasks, e.SubmitBatch(t.Context(), tasks)))
}

// slowClaims grants all claims, each round trip when it is let go on.
type slowClaims struct {
	goOn chan struct{}
	mu   sync.Mutex
	// asked is how many claims each round trip was for.
	asked []int
}

func (c *slowClaims) ClaimBatch(_ context.Context, claims []dedup.Claim) ([]dedup.Verdict, error) {
	c.mu.Lock()
	c.asked = append(c.asked, len(claims))
	c.mu.Unlock()
	<-c.goOn
	verdicts := make([]dedup.Verdict, len(claims))
	for i := range verdicts {
		verdicts[i].Decision = dedup.Granted
	}
	return verdicts, nil
}

func (c *slowClaims) SettleBatch(_ context.Context, settlements []dedup.Settlement) ([]error, error) {
	return make([]error, len(settlements)), nil
}

// TestWhatComesDuringARoundTripGoesTogether holds that a Redis that is slow is asked
// rarely and for many, and that nobody is left who waits.
func TestWhatComesDuringARoundTripGoesTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		claims := &slowClaims{goOn: make(chan struct{})}
		e := with(t, executor.Config{
			Registry: kinds{"fine": fine}, Claims: claims,
			Limits: executor.Limits{Concurrency: 4000, Target: executor.Share{InFlight: -1}},
		})
		one := []task.Task{keyed("fine", "first")}
		first := e.SubmitBatch(t.Context(), one)
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		others := many(2500, keyed("fine", "k"))
		results := e.SubmitBatch(t.Context(), others)
		synctest.Wait()
		close(claims.goOn)
		require.Equal(t, map[task.Status]int{task.Succeeded: 1}, collect(t, one, first))
		require.Equal(t, map[task.Status]int{task.Succeeded: 2500}, collect(t, others, results))
		claims.mu.Lock()
		defer claims.mu.Unlock()
		require.Equal(t, []int{1, 1000, 1000, 500}, claims.asked)
	})
}
