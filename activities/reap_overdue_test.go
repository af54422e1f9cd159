package activities_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// history is that of a workflow.
type history struct{ events []*historypb.HistoryEvent }

func (h *history) HasNext() bool { return len(h.events) > 0 }

func (h *history) Next() (*historypb.HistoryEvent, error) {
	e := h.events[0]
	h.events = h.events[1:]
	return e, nil
}

// GetWorkflowHistory is the history of a run, by its id.
func (c connection) GetWorkflowHistory(_ context.Context, id, _ string, _ bool, _ enumspb.HistoryEventFilterType) client.HistoryEventIterator {
	c.known.mu.Lock()
	defer c.known.mu.Unlock()
	c.known.read = append(c.known.read, id)
	return &history{slices.Clone(c.known.histories[id])}
}

func payload(t *testing.T, v any) *commonpb.Payload {
	t.Helper()
	p, err := converter.GetDefaultDataConverter().ToPayload(v)
	require.NoError(t, err)
	return p
}

// planned are the first events of a run with a plan, whose clock began so long ago.
func planned(t *testing.T, plan *spec.Plan, ago time.Duration) []*historypb.HistoryEvent {
	t.Helper()
	list := func(v any) *commonpb.Payloads {
		return &commonpb.Payloads{Payloads: []*commonpb.Payload{payload(t, v)}}
	}
	timer := func(summary string) *historypb.HistoryEvent {
		return &historypb.HistoryEvent{
			EventTime: timestamppb.New(time.Now().Add(-ago)), UserMetadata: &sdkpb.UserMetadata{Summary: payload(t, summary)},
			Attributes: &historypb.HistoryEvent_TimerStartedEventAttributes{TimerStartedEventAttributes: &historypb.TimerStartedEventAttributes{
				StartToFireTimeout: durationpb.New(plan.Timeout),
			}},
		}
	}
	events := []*historypb.HistoryEvent{
		{EventId: 1, Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{Input: list(map[string]string{"tenant": "acme"})},
		}},
		{EventId: 5, Attributes: &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
			ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{ActivityType: &commonpb.ActivityType{Name: "Plan"}},
		}},
		{EventId: 7, Attributes: &historypb.HistoryEvent_ActivityTaskCompletedEventAttributes{
			ActivityTaskCompletedEventAttributes: &historypb.ActivityTaskCompletedEventAttributes{ScheduledEventId: 5, Result: list(plan)},
		}},
		timer("a wait that is as long"),
	}
	if ago > 0 {
		events = append(events, timer(activities.PipelineClock))
	}
	return events
}

// TestFindOverdue: what a run may take is its timeout, 3 minutes of grace, finally
// and release of its stage, 3 of its own, and a margin of 10.
func TestFindOverdue(t *testing.T) {
	t.Parallel()
	plan := &spec.Plan{
		Name: "p", Timeout: time.Hour, FinallyTimeout: time.Minute, ReleaseTimeout: time.Minute, Notify: &spec.Notify{Webhook: "http://x"},
		Stages: []spec.Stage{{FinallyTimeout: 30 * time.Second, Steps: []spec.Step{{Parallel: []spec.Step{{GracePeriod: time.Minute}}}}}},
	}
	all := activities.FindInput{Limit: 50, Eager: true}
	running := func(ids ...string) []execution {
		var out []execution
		for _, id := range ids {
			out = append(out, execution{id: id, runID: id, status: opened, published: run.Running})
		}
		return out
	}

	t.Run("TellsOnceOfWhatIsFarPastItsBudgets", func(t *testing.T) {
		t.Parallel()
		r := reap(t, false, running("late", "nearly", "waits")...)
		r.known.histories = map[string][]*historypb.HistoryEvent{
			"late": planned(t, plan, 77*time.Minute), "nearly": planned(t, plan, 74*time.Minute), "waits": planned(t, plan, 0),
		}
		found := r.find(t, all)
		require.Empty(t, found.Notes)
		require.Empty(t, found.Runs, "it is open, and nothing of it is touched")
		require.Len(t, found.Overdue, 1)
		o := found.Overdue[0]
		require.Equal(t, activities.Owner{RunKey: "late", WorkflowID: "late", RunID: "late"}, o.Owner)
		require.Equal(t, []string{"acme", "default", "p"}, []string{o.Tenant, o.Project, o.Pipeline})
		require.Equal(t, plan.Notify, o.Notify)
		clock := r.known.histories["late"][4].GetEventTime().AsTime()
		require.Equal(t, clock.Add(66*time.Minute), o.Deadline)
		require.Equal(t, 1, r.overdue)
		for range 2 {
			require.Empty(t, r.find(t, all).Overdue, "told")
		}
		require.Len(t, r.known.read, 3, "each history is read once")

		other := reap(t, true, running("late")...)
		other.known.histories = r.known.histories
		other.share(r.ledger)
		require.Empty(t, other.find(t, all).Overdue, "another worker has told")
		require.Equal(t, []string{"late"}, other.known.read)
	})

	t.Run("AlsoWithoutRedis", func(t *testing.T) {
		t.Parallel()
		r := reap(t, true, running("late")...)
		r.known.histories = map[string][]*historypb.HistoryEvent{"late": planned(t, plan, 2*time.Hour)}
		require.Len(t, r.find(t, all).Overdue, 1)
		require.Empty(t, r.find(t, all).Overdue)
	})

	t.Run("LooksRarely", func(t *testing.T) {
		t.Parallel()
		r := reap(t, false, running("late")...)
		require.Empty(t, r.find(t, activities.FindInput{Limit: 50}).Overdue)
		r.known.histories = map[string][]*historypb.HistoryEvent{"late": planned(t, plan, 2*time.Hour)}
		require.Empty(t, r.find(t, activities.FindInput{Limit: 50}).Overdue, "not with each pass")
		require.Len(t, r.known.read, 1)
	})
}
