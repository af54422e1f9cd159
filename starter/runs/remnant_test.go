package runs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/starter/runs"
	"belay.run/starter/testkit/frontend"
	"belay.run/workflows"
)

// scheduled is the event of an activity that begins.
func scheduled(id int64, what, name string) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{
		EventId: id, EventTime: timestamppb.Now(), EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
		Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
			ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{
				ActivityId: name, ActivityType: &commonpb.ActivityType{Name: what},
			},
		},
	}
}

// completed, failed, canceled and timedOut are the ends of the activity that the
// given event scheduled.
func completed(of int64, result any) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{
		EventId: of + 100, EventTime: timestamppb.Now(), EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
		Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
			ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{ScheduledEventId: of, Result: frontend.Payloads(result)},
		},
	}
}

func failed(of int64, err error) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{
		EventId: of + 100, EventTime: timestamppb.Now(), EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED,
		Attributes: &historypb.HistoryEvent_ActivityTaskFailedEventAttributes{
			ActivityTaskFailedEventAttributes: &historypb.ActivityTaskFailedEventAttributes{
				ScheduledEventId: of, Failure: temporal.GetDefaultFailureConverter().ErrorToFailure(err),
			},
		},
	}
}

func canceled(of int64, result any) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{
		EventId: of + 100, EventTime: timestamppb.Now(), EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED,
		Attributes: &historypb.HistoryEvent_ActivityTaskCanceledEventAttributes{
			ActivityTaskCanceledEventAttributes: &historypb.ActivityTaskCanceledEventAttributes{ScheduledEventId: of, Details: frontend.Payloads(result)},
		},
	}
}

func timedOut(of int64, as enumspb.TimeoutType) *historypb.HistoryEvent {
	return &historypb.HistoryEvent{
		EventId: of + 100, EventTime: timestamppb.Now(), EventType: enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
		Attributes: &historypb.HistoryEvent_ActivityTaskTimedOutEventAttributes{
			ActivityTaskTimedOutEventAttributes: &historypb.ActivityTaskTimedOutEventAttributes{
				ScheduledEventId: of, Failure: &failurepb.Failure{FailureInfo: &failurepb.Failure_TimeoutFailureInfo{
					TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{TimeoutType: as},
				}},
			},
		},
	}
}

// TestReadShowsTheStepsOfATerminatedStage: its workflow left no document, and no
// worker is there. Each step is as its history says, and none runs.
func TestReadShowsTheStepsOfATerminatedStage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := &run.Document{Pipeline: "p"}
	b.pipeline("d/d/p/r/1", doc)
	w := b.stage(doc, "build", &run.Stage{Status: run.Running})
	var steps []spec.Step
	for _, name := range []string{"done", "bad", "lost", "stopped", "twin", "busy", "runs", "never"} {
		steps = append(steps, spec.Step{Name: name, Run: []spec.Command{{Script: "x"}}, GracePeriod: time.Second})
	}
	w.Input = workflows.StageInput{Stage: spec.Stage{
		Name: "build", Finally: []spec.Step{{Name: "tidy"}},
		Steps: []spec.Step{steps[0], {Name: "g", Parallel: steps[1:6]}, steps[6], steps[7]},
	}}
	code, began, ended := 3, time.Now().UTC().Add(-time.Minute), time.Now().UTC()
	w.Events = []*historypb.HistoryEvent{
		scheduled(5, "Bind", "5"),
		completed(5, activities.Binding{Host: "h1", Queue: "q"}),
		scheduled(6, "Prepare", "6"),
		completed(6, nil),
		scheduled(10, "RunStep", "done"),
		completed(10, activities.StepResult{Attempt: 2, StartedAt: began, EndedAt: ended, Outputs: map[string]string{"v": "1"}}),
		scheduled(11, "RunStep", "bad"), scheduled(12, "RunStep", "lost"), scheduled(13, "RunStep", "stopped"),
		scheduled(14, "RunLight", "twin"), scheduled(15, "RunStep", "busy"), scheduled(16, "RunStep", "runs"),
		failed(11, temporal.NewNonRetryableApplicationError("exit code 3", "exit_code", nil, activities.StepResult{Attempt: 1, ExitCode: &code})),
		timedOut(12, enumspb.TIMEOUT_TYPE_HEARTBEAT),
		canceled(13, activities.StepResult{Attempt: 4}),
		completed(14, activities.StepResult{Attempt: 1}),
		timedOut(15, enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START),
	}
	b.server.Terminate(w, "ann@desk", "stuck")
	w.Status = nil

	snap, err := b.client.Reader(runs.Ref{ID: doc.ID, RunID: runID}).Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, snap.NoAnswer)
	stage := snap.Document.Stages[0]
	require.Equal(t, run.Cancelled, stage.Status)
	require.Equal(t, "h1", stage.Host)
	got := map[string]run.Status{}
	byName := map[string]run.Step{}
	for _, s := range stage.Steps {
		got[s.Name], byName[s.Name] = s.Status, s
	}
	require.Equal(t, map[string]run.Status{
		"done": run.Succeeded, "bad": run.Failed, "lost": run.Failed, "stopped": run.Cancelled, "twin": run.Succeeded,
		"busy": run.Cancelled, "runs": run.Cancelled, "never": run.Skipped, "tidy": run.Skipped,
	}, got)
	require.Equal(t, 2, byName["done"].Attempts)
	require.Equal(t, map[string]string{"v": "1"}, byName["done"].Outputs)
	require.Equal(t, &ended, byName["done"].EndedAt)
	require.Equal(t, 3, *byName["bad"].ExitCode)
	require.Equal(t, &run.Cause{Trigger: run.TriggerExitCode, Source: "build/bad", Message: "exit code 3"}, byName["bad"].Cause)
	require.Equal(t, "g", byName["bad"].Group)
	require.Equal(t, run.TriggerWorkerLost, byName["lost"].Cause.Trigger)
	require.Equal(t, 4, byName["stopped"].Attempts)
	require.Equal(t, &run.Cause{Trigger: run.TriggerUser, Source: "build", By: "ann@desk", Message: "terminated: stuck"}, byName["runs"].Cause)
	require.NotNil(t, byName["runs"].EndedAt)
	require.NotNil(t, byName["runs"].StartedAt)
	require.Equal(t, run.TriggerDependencyFailed, byName["never"].Cause.Trigger)
	require.True(t, byName["tidy"].Finally)
}
