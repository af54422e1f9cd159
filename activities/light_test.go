package activities_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"belay.run/activities"
	"belay.run/internal/executor"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/task"
	"belay.run/internal/task/types"
)

// taker stands in for an executor: it answers by do, and notes what it was given.
type taker struct {
	do func(ctx context.Context, t task.Task) (task.Result, error)

	mu    sync.Mutex
	given []task.Task
}

func (k *taker) Submit(ctx context.Context, t task.Task) (task.Result, error) {
	k.mu.Lock()
	k.given = append(k.given, t)
	k.mu.Unlock()
	return k.do(ctx, t)
}

// answering is a taker that answers each task alike.
func answering(r task.Result, err error) *taker {
	return &taker{do: func(_ context.Context, t task.Task) (task.Result, error) {
		r.ID, r.Type = t.ID, t.Type
		return r, err
	}}
}

// ailing is a taker whose tasks fail.
func ailing(f *task.Failure) *taker {
	return answering(task.Result{Status: task.Failed, Error: f}, nil)
}

// lightBundle runs light steps and tasks as activities.
type lightBundle struct {
	env   *testsuite.TestActivityEnvironment
	light *activities.Light
}

func lightly(cfg activities.LightConfig) *lightBundle {
	var suite testsuite.WorkflowTestSuite
	b := &lightBundle{env: suite.NewTestActivityEnvironment(), light: activities.NewLight(cfg)}
	b.env.SetTestTimeout(time.Minute)
	b.env.RegisterActivity(b.light)
	return b
}

func lightStep() activities.LightInput {
	return activities.LightInput{
		Node: "s/a", Uses: "http", With: map[string]any{"url": "http://a"}, Timeout: time.Second, To: spec.ToLight,
		Origin: &task.Origin{Tenant: "shop", Project: "web", Run: "shop/web/r", Node: "s/a"},
	}
}

func (b *lightBundle) step(in activities.LightInput) (*activities.StepResult, error) {
	value, err := b.env.ExecuteActivity(b.light.RunLight, in)
	if err != nil {
		return nil, err
	}
	var r activities.StepResult
	return &r, value.Get(&r)
}

func (b *lightBundle) task(t task.Task) (*task.Result, error) {
	value, err := b.env.ExecuteActivity(b.light.RunTask, t)
	if err != nil {
		return nil, err
	}
	var r task.Result
	return &r, value.Get(&r)
}

// requireCause holds an activity's error to a trigger, and to whether Temporal may
// try again.
func requireCause(t *testing.T, err error, trigger run.Trigger, retryable bool, says string) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(trigger), app.Type())
	require.Equal(t, !retryable, app.NonRetryable())
	require.Contains(t, app.Message(), says)
}

func TestLightStepHandsOn(t *testing.T) {
	t.Parallel()
	k := answering(task.Result{Status: task.Succeeded, Output: task.Output{"status": 200, "more": "x"}, Waited: time.Hour}, nil)
	in := lightStep()
	in.Outputs, in.Secrets = []string{"status", "body"}, nil
	r, err := lightly(activities.LightConfig{Executor: k}).step(in)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"status": "200", "body": ""}, r.Outputs, "what a task leaves out is empty")
	require.Equal(t, 1, r.Attempt)
	require.True(t, r.StartedAt.After(time.Now().Add(30*time.Minute)), "the wait is not the step's time")

	got := k.given[0]
	require.Equal(t, "http", got.Type)
	require.JSONEq(t, `{"url":"http://a"}`, string(got.With))
	require.Equal(t, time.Second, got.Timeout)
	require.Equal(t, "shop", got.Origin.Tenant)
	require.NotEmpty(t, got.Origin.IdempotencyKey)
	require.Regexp(t, `^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`, got.Origin.TraceParent)
	require.NotNil(t, got.Origin.Listed, "a step that lists no secrets is one all the same")
	require.Empty(t, got.Origin.Listed)
}

// The secrets that a step lists go with it, and are no output.
func TestLightStepWithSecrets(t *testing.T) {
	t.Parallel()
	k := answering(task.Result{Status: task.Succeeded, Output: task.Output{"status": "is hunter2-hunter2"}}, nil)
	in := lightStep()
	in.Secrets = []string{"TOKEN"}
	b := lightly(activities.LightConfig{Executor: k, Secrets: secrets{"TOKEN": "hunter2-hunter2"}})
	_, err := b.step(in)
	require.NoError(t, err)
	require.Equal(t, []string{"TOKEN"}, k.given[0].Origin.Listed)
	in.Outputs = []string{"status"}
	_, err = b.step(in)
	requireCause(t, err, run.TriggerInvalid, false, `"status" holds a secret`)
}

// A task that is no step lists nothing, whatever is said of it.
func TestLightTaskListsNoSecrets(t *testing.T) {
	t.Parallel()
	k := answering(task.Result{Status: task.Succeeded}, nil)
	_, err := lightly(activities.LightConfig{Executor: k}).task(task.Task{ID: "a", Type: "http", Origin: task.Origin{Listed: []string{"TOKEN"}}})
	require.NoError(t, err)
	require.Nil(t, k.given[0].Origin.Listed)
}

func TestLightFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fails     *task.Failure
		retryable bool
	}{
		"TargetIsNotWell": {task.Faultf("it said 503"), true},
		"OtherThanAsked":  {task.Failf(run.TriggerExitCode, "it said 404"), true}, // a step's retry holds for that
		"WrongTask":       {task.Failf(run.TriggerInvalid, "it has no url"), false},
		"TooLarge":        {task.Failf(run.TriggerLimitExceeded, "it is too large"), false},
		"Crash":           {task.Failf(run.TriggerProcessCrashed, "it panicked"), false},
		"Stopped":         {&task.Failure{Trigger: run.TriggerMaintenance, Message: "the worker stops", Retryable: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := lightly(activities.LightConfig{Executor: ailing(c.fails)})
			_, err := b.step(lightStep())
			requireCause(t, err, c.fails.Trigger, c.retryable, c.fails.Message)
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app)
			var r activities.StepResult
			require.NoError(t, app.Details(&r))
			require.Equal(t, "s/a", r.Cause.Source)
			require.Nil(t, r.Outputs)

			_, err = b.task(task.Task{ID: "a", Type: "http"})
			require.ErrorAs(t, err, &app)
			require.Equal(t, string(c.fails.Trigger), app.Type())
			var res task.Result
			require.NoError(t, app.Details(&res))
			require.Equal(t, c.fails.Message, res.Error.Message)
		})
	}
}

func TestLightStepsThatAreNotTaken(t *testing.T) {
	t.Parallel()

	t.Run("Wrong", func(t *testing.T) {
		t.Parallel()
		k := answering(task.Result{}, task.Failf(run.TriggerInvalid, "type: not known"))
		_, err := lightly(activities.LightConfig{Executor: k}).step(lightStep())
		requireCause(t, err, run.TriggerInvalid, false, "not known")
	})

	// Another attempt goes to another worker.
	t.Run("Closing", func(t *testing.T) {
		t.Parallel()
		k := answering(task.Result{}, &executor.RefusedError{Reason: executor.Closing, RetryAfter: time.Hour})
		_, err := lightly(activities.LightConfig{Executor: k}).step(lightStep())
		requireCause(t, err, run.TriggerMaintenance, true, "the worker stops")
		require.Len(t, k.given, 1, "it does not wait there")
	})

	t.Run("Full", func(t *testing.T) {
		t.Parallel()
		k := &taker{}
		k.do = func(context.Context, task.Task) (task.Result, error) {
			if len(k.given) < 3 {
				return task.Result{}, &executor.RefusedError{Reason: executor.QueueFull, RetryAfter: time.Millisecond}
			}
			return task.Result{Status: task.Succeeded}, nil
		}
		_, err := lightly(activities.LightConfig{Executor: k}).step(lightStep())
		require.NoError(t, err)
		require.Len(t, k.given, 3)
	})

	t.Run("OtherErrors", func(t *testing.T) {
		t.Parallel()
		k := answering(task.Result{}, errors.New("out of luck"))
		_, err := lightly(activities.LightConfig{Executor: k}).step(lightStep())
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		require.False(t, app.NonRetryable())
	})

	t.Run("ByNobody", func(t *testing.T) {
		t.Parallel()
		k := answering(task.Result{Status: task.Succeeded}, nil)
		in := lightStep()
		in.To = spec.ToHost
		_, err := lightly(activities.LightConfig{Executor: k}).step(in)
		requireCause(t, err, run.TriggerInvalid, false, "not known to this worker")
		_, err = lightly(activities.LightConfig{Heavy: k}).step(in)
		require.NoError(t, err)
		_, err = lightly(activities.LightConfig{}).task(task.Task{Type: "http"})
		requireCause(t, err, run.TriggerInvalid, false, "takes no light tasks")
	})
}

// What waits for room, or runs, ends when its step is cancelled.
func TestLightCancel(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(ctx context.Context, began func()) (task.Result, error){
		"Running": func(ctx context.Context, began func()) (task.Result, error) {
			began()
			<-ctx.Done()
			return task.Result{Status: task.Failed, Error: task.Failf(run.TriggerUser, "told to stop")}, nil
		},
		"Full": func(_ context.Context, began func()) (task.Result, error) {
			began()
			return task.Result{}, &executor.RefusedError{Reason: executor.TargetFull, RetryAfter: time.Hour}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []string{"step", "task"} {
				ctx, cancel := context.WithCancelCause(t.Context())
				k := &taker{do: func(ctx context.Context, _ task.Task) (task.Result, error) {
					return do(ctx, func() { cancel(temporal.NewCanceledError()) })
				}}
				b := lightly(activities.LightConfig{Executor: k})
				b.env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
				var err error
				if kind == "step" {
					_, err = b.step(lightStep())
				} else {
					_, err = b.task(task.Task{ID: "a", Type: "http"})
				}
				var cancelled *temporal.CanceledError
				require.ErrorAs(t, err, &cancelled, kind)
				require.Len(t, k.given, 1)
			}
		})
	}
}

// With the executor that workers have.
func TestLightByAnExecutor(t *testing.T) {
	t.Parallel()
	e, err := executor.New(executor.Config{Registry: types.Builtin(types.Tools{})})
	require.NoError(t, err)
	b := lightly(activities.LightConfig{Executor: e})
	noop := func(sleep string, timeout time.Duration) activities.LightInput {
		in := lightStep()
		in.Uses, in.With, in.Timeout = "noop", map[string]any{"sleep": sleep}, timeout
		return in
	}
	_, err = b.step(noop("1ms", time.Minute))
	require.NoError(t, err)
	_, err = b.step(noop("1h", 10*time.Millisecond))
	requireCause(t, err, run.TriggerStepTimeout, true, "")
	unknown := lightStep()
	unknown.Uses = "nop"
	_, err = b.step(unknown)
	requireCause(t, err, run.TriggerInvalid, false, "did you mean noop?")
	_, err = b.task(task.Task{ID: "a", Type: "http", With: []byte(`{"url":"http://127.0.0.1:1","secret":"TOKEN"}`), Origin: task.Origin{Tenant: "shop"}})
	requireCause(t, err, run.TriggerInvalid, false, "light_secrets")

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, e.Close(ctx))
	_, err = b.step(noop("1ms", time.Minute))
	requireCause(t, err, run.TriggerMaintenance, true, "another")
}
