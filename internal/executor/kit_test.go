package executor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/executor"
	"belay.run/internal/pause"
	"belay.run/internal/run"
	"belay.run/internal/task"
)

// job is what a task of a test does.
type job func(ctx context.Context, origin task.Origin) (task.Output, error)

// kinds prepares tasks whose type is in it. With is the target, as it stands.
type kinds map[string]job

func (k kinds) Prepare(t task.Task) (task.Job, error) {
	run, ok := k[t.Type]
	if !ok {
		return nil, fmt.Errorf("there is no type %q", t.Type)
	}
	return prepared{string(t.With), run}, nil
}

type prepared struct {
	target string
	run    job
}

func (p prepared) Target() string { return p.target }

func (p prepared) Run(ctx context.Context, o task.Origin) (task.Output, error) { return p.run(ctx, o) }

// to is a task of a type for a target.
func to(kind, target string) task.Task {
	return task.Task{ID: kind + "-" + target, Type: kind, With: []byte(target)}
}

func many(n int, t task.Task) []task.Task {
	tasks := make([]task.Task, n)
	for i := range tasks {
		tasks[i] = t
		tasks[i].ID = fmt.Sprintf("%s-%d", t.ID, i)
	}
	return tasks
}

// open returns an executor that is closed when the test ends.
func open(t testing.TB, k kinds, limits executor.Limits) *executor.Executor {
	t.Helper()
	return with(t, executor.Config{Registry: k, Limits: limits})
}

func with(t testing.TB, cfg executor.Config) *executor.Executor {
	t.Helper()
	e, err := executor.New(cfg.Calm())
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		require.NoError(t, e.Close(ctx))
	})
	return e
}

// gauge knows how many run at once, and how many did at most.
type gauge struct {
	mu               sync.Mutex
	now, most, total int
}

func (g *gauge) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now++
	g.total++
	g.most = max(g.most, g.now)
}

func (g *gauge) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
}

func (g *gauge) seen() (now, most, total int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now, g.most, g.total
}

// during is a job that takes a while, and honours its context.
func (g *gauge) during(d time.Duration) job {
	return func(ctx context.Context, _ task.Origin) (task.Output, error) {
		g.enter()
		defer g.leave()
		return task.Output{"took": d.String()}, pause.For(ctx, d)
	}
}

// until is a job that ends when a channel is closed.
func (g *gauge) until(end <-chan struct{}) job {
	return func(ctx context.Context, _ task.Origin) (task.Output, error) {
		g.enter()
		defer g.leave()
		select {
		case <-end:
			return nil, nil //nolint:nilnil // there is nothing to tell
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// dead is a job whose target refuses.
func dead(context.Context, task.Origin) (task.Output, error) {
	return nil, task.Faultf("connection refused")
}

func fine(context.Context, task.Origin) (task.Output, error) { return task.Output{"ok": true}, nil }

// flapping is a job whose target is well or not.
func flapping(well *atomic.Bool, g *gauge) job {
	return func(ctx context.Context, o task.Origin) (task.Output, error) {
		g.enter()
		defer g.leave()
		if well.Load() {
			return fine(ctx, o)
		}
		return dead(ctx, o)
	}
}

// collect reads all results of a batch, of which each task has one.
func collect(t testing.TB, tasks []task.Task, results <-chan task.Result) map[task.Status]int {
	t.Helper()
	seen := map[string]bool{}
	count := map[task.Status]int{}
	for r := range results {
		require.False(t, seen[r.ID], "two results of %s", r.ID)
		seen[r.ID] = true
		count[r.Status]++
		require.Equal(t, r.Status == task.Failed || r.Status == task.Skipped, r.Error != nil, "%+v", r)
	}
	for i := range tasks {
		require.True(t, seen[tasks[i].ID], "no result of %s", tasks[i].ID)
	}
	return count
}

func refusal(t testing.TB, err error) *executor.RefusedError {
	t.Helper()
	var refused *executor.RefusedError
	require.ErrorAs(t, err, &refused)
	return refused
}

func succeeds(t testing.TB, e *executor.Executor, tk task.Task) task.Result {
	t.Helper()
	r, err := e.Submit(t.Context(), tk)
	require.NoError(t, err)
	require.Equal(t, task.Succeeded, r.Status, "%v", r.Error)
	return r
}

func fails(t testing.TB, e *executor.Executor, tk task.Task, trigger run.Trigger) task.Result {
	t.Helper()
	r, err := e.Submit(t.Context(), tk)
	require.NoError(t, err)
	require.Equal(t, task.Failed, r.Status)
	require.Equal(t, trigger, r.Error.Trigger)
	return r
}

var errStopped = errors.New("the test stopped it")
