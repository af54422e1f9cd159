package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.run/internal/batch"
	"belay.run/internal/executor"
	"belay.run/internal/run"
)

// past has a workflow whose history it is.
type past struct {
	client.Client

	events []*historypb.HistoryEvent
}

func (p *past) GetWorkflowHistory(context.Context, string, string, bool, enumspb.HistoryEventFilterType) client.HistoryEventIterator {
	return p
}

func (p *past) HasNext() bool { return len(p.events) > 0 }

func (p *past) Next() (*historypb.HistoryEvent, error) {
	e := p.events[0]
	p.events = p.events[1:]
	return e, nil
}

// TestPickups holds that only steps count, each from its own beginning.
func TestPickups(t *testing.T) {
	t.Parallel()
	began := time.Now()
	event := func(id int64, after time.Duration) *historypb.HistoryEvent {
		return &historypb.HistoryEvent{EventId: id, EventTime: timestamppb.New(began.Add(after))}
	}
	scheduled := func(id int64, name string) *historypb.HistoryEvent {
		e := event(id, time.Duration(id)*time.Second)
		e.Attributes = &historypb.HistoryEvent_ActivityTaskScheduledEventAttributes{
			ActivityTaskScheduledEventAttributes: &historypb.ActivityTaskScheduledEventAttributes{ActivityType: &commonpb.ActivityType{Name: name}},
		}
		return e
	}
	started := func(id int64, after time.Duration) *historypb.HistoryEvent {
		e := event(id+100, time.Duration(id)*time.Second+after)
		e.Attributes = &historypb.HistoryEvent_ActivityTaskStartedEventAttributes{
			ActivityTaskStartedEventAttributes: &historypb.ActivityTaskStartedEventAttributes{ScheduledEventId: id},
		}
		return e
	}
	waits, err := pickups(t.Context(), &past{events: []*historypb.HistoryEvent{
		event(1, 0), scheduled(2, "Bind"), scheduled(3, heavyStep), started(2, time.Minute), scheduled(4, heavyStep),
		started(4, 3*time.Millisecond), started(3, 2*time.Millisecond),
	}}, "stage")
	require.NoError(t, err)
	require.Equal(t, []float64{3, 2}, waits)
	_, err = pickups(t.Context(), &past{}, "stage")
	require.EqualError(t, err, "stage ran no steps")
}

func TestOnlyTheCancelMayFailLightTasks(t *testing.T) {
	t.Parallel()
	d := &batch.Document{Failures: []batch.Failure{{Trigger: run.TriggerUser}}}
	require.False(t, faulty(d))
	d.Failures = append(d.Failures, batch.Failure{Trigger: run.TriggerStepTimeout})
	require.True(t, faulty(d))
}

func TestHeavyFigures(t *testing.T) {
	t.Parallel()
	h := &heavyBench{beside: []executor.Status{
		{Rate: 1, Concurrency: 1, Limit: 1000}, // to warm up
		{Rate: 500, Concurrency: 1000, Limit: 1000}, {Rate: 300, Concurrency: 500, Limit: 1000}, {Rate: 400, Concurrency: 100, Limit: 1000},
	}}
	figures := h.figures("light_heavy_half", 1000, Figure{Ratio: 1.6})
	require.False(t, figures[0].Goal.Met)
	require.Equal(t, "ratio ≤ 1.5", figures[0].Goal.Want)
	require.Equal(t, "light_heavy_half_rate", figures[1].Name)
	require.InDelta(t, 0.4, figures[1].Ratio, 1e-9)
	require.Equal(t, "light_heavy_half_cap", figures[2].Name)
	require.InDelta(t, 500.0, figures[2].Value, 0)
	require.Nil(t, h.figures("light_heavy_full", 1000, Figure{Ratio: 9})[0].Goal)
}
