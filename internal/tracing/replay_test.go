package tracing_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.run/internal/telemetry"
	"belay.run/internal/testkit/collector"
	"belay.run/internal/tracing"
)

func talks(ctx workflow.Context) error {
	tracing.Tell(ctx, "talks", &tracing.Scope{Tenant: "shop", Pipeline: "release", Run: "r-1", Node: "build"})
	workflow.GetLogger(ctx).Warn("hello")
	return nil
}

// TestOnceAndNotOnReplay holds that a workflow's lines are written and its span
// recorded where it runs, and not again where it is replayed.
func TestOnceAndNotOnReplay(t *testing.T) {
	t.Parallel()
	c := collector.Start(t)
	traces := c.Tracing(t)
	var text bytes.Buffer
	log, err := telemetry.NewLogger(&text, "debug", telemetry.FormatJSON)
	require.NoError(t, err)
	between := []interceptor.WorkerInterceptor{tracing.Worker(traces, "talks")}
	named := workflow.RegisterOptions{Name: "talks"}

	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{Interceptors: between})
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(talks, named)
	require.NoError(t, replayer.ReplayWorkflowHistory(telemetry.Temporal(log), history()))
	require.NotContains(t, text.String(), "hello")
	text.Reset()

	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(telemetry.Temporal(log))
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: between})
	env.RegisterWorkflowWithOptions(talks, named)
	env.ExecuteWorkflow("talks")
	require.NoError(t, env.GetWorkflowError())
	traces.Close(time.Minute)
	spans := c.Spans()
	require.Len(t, spans, 1)
	var lines []map[string]any
	for line := range strings.Lines(text.String()) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if m["message"] == "hello" {
			lines = append(lines, m)
		}
	}
	require.Len(t, lines, 1)
	for field, want := range map[string]string{
		"tenant": "shop", "pipeline": "release", "run": "r-1", "node": "build", "trace_id": spans[0].Trace, "level": "warn",
	} {
		require.Equal(t, want, lines[0][field], field)
	}
}

// history is that of the workflow, from its beginning to its end.
func history() *historypb.History {
	at := timestamppb.New(time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC))
	event := func(id int64, kind enumspb.EventType, of *historypb.HistoryEvent) *historypb.HistoryEvent {
		of.EventId, of.EventType, of.EventTime = id, kind, at
		return of
	}
	return &historypb.History{Events: []*historypb.HistoryEvent{
		event(1, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, &historypb.HistoryEvent{
			Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
				WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
					WorkflowType: &commonpb.WorkflowType{Name: "talks"}, TaskQueue: &taskqueuepb.TaskQueue{Name: "q"},
					OriginalExecutionRunId: "r", FirstExecutionRunId: "r", Attempt: 1,
				},
			},
		}),
		event(2, enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, &historypb.HistoryEvent{
			Attributes: &historypb.HistoryEvent_WorkflowTaskScheduledEventAttributes{
				WorkflowTaskScheduledEventAttributes: &historypb.WorkflowTaskScheduledEventAttributes{Attempt: 1},
			},
		}),
		event(3, enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED, &historypb.HistoryEvent{
			Attributes: &historypb.HistoryEvent_WorkflowTaskStartedEventAttributes{
				WorkflowTaskStartedEventAttributes: &historypb.WorkflowTaskStartedEventAttributes{ScheduledEventId: 2},
			},
		}),
		event(4, enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, &historypb.HistoryEvent{
			Attributes: &historypb.HistoryEvent_WorkflowTaskCompletedEventAttributes{
				WorkflowTaskCompletedEventAttributes: &historypb.WorkflowTaskCompletedEventAttributes{ScheduledEventId: 2, StartedEventId: 3},
			},
		}),
		event(5, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, &historypb.HistoryEvent{
			Attributes: &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
				WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{WorkflowTaskCompletedEventId: 4},
			},
		}),
	}}
}
