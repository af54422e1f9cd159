package tracing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"belay.run/internal/testkit/collector"
	"belay.run/internal/tracing"
)

func parent(ctx workflow.Context, child bool) (string, error) {
	tracing.Tell(ctx, "named", &tracing.Scope{Tenant: "shop", Run: "r-1"})
	tracing.Note(ctx, "note", "noted")
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	if !child {
		var got string
		return got, workflow.ExecuteActivity(ctx, "act", false).Get(ctx, &got)
	}
	if err := workflow.ExecuteChildWorkflow(ctx, "parent", false).Get(ctx, nil); err != nil {
		return "", err
	}
	return "", workflow.ExecuteActivity(ctx, "act", true).Get(ctx, nil)
}

func act(ctx context.Context, fail bool) (string, error) {
	if fail {
		return "", temporal.NewNonRetryableApplicationError("a message with a password", "exit_code", nil)
	}
	at, _ := tracing.Parent(ctx)
	return at, nil
}

// run runs the workflow under Temporal's test kit.
func run(t *testing.T, traces *tracing.Tracing, child bool) (string, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{tracing.Worker(traces, "parent")}})
	env.RegisterWorkflowWithOptions(parent, workflow.RegisterOptions{Name: "parent"})
	env.RegisterActivityWithOptions(act, activity.RegisterOptions{Name: "act"})
	env.ExecuteWorkflow("parent", child)
	require.True(t, env.IsWorkflowCompleted())
	if err := env.GetWorkflowError(); err != nil {
		return "", err
	}
	var out string
	require.NoError(t, env.GetWorkflowResult(&out))
	return out, nil
}

// TestWorker holds who is whose parent, and what a span says of a failure.
func TestWorker(t *testing.T) {
	t.Parallel()
	c := collector.Start(t)
	traces := c.Tracing(t)
	_, err := run(t, traces, true)
	require.Error(t, err)
	traces.Close(time.Minute)
	byParent := map[string][]collector.Span{}
	for _, s := range c.Spans() {
		byParent[s.Parent] = append(byParent[s.Parent], s)
	}
	require.Len(t, byParent[""], 1, "one trace")
	root := byParent[""][0]
	require.Equal(t, "named", root.Name)
	require.Equal(t, "noted", root.Attributes["note"])
	require.Equal(t, "shop", root.Attributes[tracing.AttrTenant])
	require.True(t, root.Failed)
	require.Len(t, byParent[root.ID], 2, "a child and an activity")
	for _, s := range byParent[root.ID] {
		require.Equal(t, root.Trace, s.Trace)
		require.Equal(t, "r-1", s.Attributes[tracing.AttrRun])
		if s.Name == "act" {
			require.Equal(t, "exit_code", s.Message, "the trigger and not the message")
			require.Equal(t, "exit_code", s.Attributes[tracing.AttrTrigger])
			continue
		}
		require.False(t, s.Failed)
		require.Len(t, byParent[s.ID], 1, "the activity of the child")
	}
	for _, sent := range c.Raw() {
		require.NotContains(t, string(sent), "password")
	}
}

// TestWorkerWithoutTracing holds that nothing is made up where nobody traces.
func TestWorkerWithoutTracing(t *testing.T) {
	t.Parallel()
	got, err := run(t, nil, false)
	require.NoError(t, err)
	require.Empty(t, got)
}

// TestADeadCollector holds that one which is away is told of once, and given up
// when the time is over.
func TestADeadCollector(t *testing.T) {
	t.Parallel()
	told := make(chan error, 10)
	traces, err := tracing.New(t.Context(), stuck{}, "test", func(err error) { told <- err })
	require.NoError(t, err)
	for range 2000 { // several batches
		_, span := traces.Tracer().Start(t.Context(), "x")
		span.End()
	}
	done := make(chan struct{})
	go func() { traces.Close(10 * time.Millisecond); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits for the collector")
	}
	require.ErrorContains(t, <-told, "gone")
	require.Empty(t, told)
}

// stuck is an exporter that answers only when it is given up.
type stuck struct{}

func (stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	<-ctx.Done()
	return errors.New("the collector is gone")
}

func (stuck) Shutdown(context.Context) error { return nil }
