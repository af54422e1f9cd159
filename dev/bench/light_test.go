package main

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/bench/load"
)

// TestLight holds which loads are measured, in turns, and what becomes of them.
func TestLight(t *testing.T) {
	t.Parallel()
	var order []load.Kind
	b := &lightBench{
		effort: lightEffort{rounds: 3, peers: []int{1_000}, peerRounds: 2}, target: &process{said: "ready 127.0.0.1:1"},
		report: &Report{}, progress: io.Discard,
		run: func(_ context.Context, s load.Spec) (load.Result, error) {
			order = append(order, s.Kind)
			r := map[load.Kind]load.Result{
				load.Executor: {QPS: 950, P99: 12, Ended: 10, Busy: 1, Cap: 900},
				load.Keyed:    {QPS: 650, Busy: 1, Cost: 900, Others: 100, Cap: 1_000}, load.Bare: {QPS: 1000, P99: 10},
				load.Threads: {QPS: 4000}, load.Asynq: {QPS: 100, Errors: 1, Error: "lost"},
			}[s.Kind]
			return r, nil
		},
	}
	require.NoError(t, b.closed(t.Context(), 1_000))
	require.Len(t, order, 15, "in the last round those that are known to be slow take no part")
	require.Equal(t, []load.Kind{load.Bare, load.Executor, load.Keyed}, order[:3])
	require.Equal(t, load.Executor, order[6], "each round begins with another")

	rows := map[string]Load{}
	for _, row := range b.report.Loads {
		rows[row.Name] = row
	}
	require.Equal(t, 30, rows["executor"].Tasks)
	require.Equal(t, "the CPUs, which allow 0.00/s; its own cap, 900 at once", rows["executor"].Bound)
	require.InDelta(t, float64(runtime.NumCPU())*1000, rows["executor, dedup"].Allow, 0, "a task takes a millisecond")
	require.Equal(t, "its threads", rows["200 threads"].Bound)
	require.Empty(t, rows["2000 threads"].Bound)
	require.Equal(t, 2, rows["asynq"].Errors)

	met := map[string]bool{}
	for _, f := range b.report.Figures {
		if f.Goal != nil {
			met[f.Name] = f.Goal.Met
		}
	}
	require.Equal(t, map[string]bool{
		"light_1000": true, "light_1000_dedup": false, "light_1000_p99": true, "light_1000_asynq": true, "light_1000_errors": true,
	}, met)

	var text strings.Builder
	require.NoError(t, b.report.writeTable(&text))
	require.Contains(t, text.String(), "bare loop; wanted ratio ≥ 0.7: NO, bound by the CPUs, which allow")
	require.Contains(t, text.String(), "1000 in flight")
}

// TestLightBesideWhatWasPublished holds open loads to their goals.
func TestLightBesideWhatWasPublished(t *testing.T) {
	t.Parallel()
	b := &lightBench{
		effort: lightEffort{rounds: 1, open: time.Second}, target: &process{said: "ready 127.0.0.1:1"},
		report: &Report{}, progress: io.Discard,
		run: func(_ context.Context, s load.Spec) (load.Result, error) {
			r := load.Result{QPS: s.Rate, P99: 100, System: 0.08, Memory: 100e6, Most: 9_500}
			if s.Files > 0 && s.Kind == load.Bare {
				r.Errors, r.NoFiles = 7, 7
			}
			return r, nil
		},
	}
	for _, measure := range []func(context.Context) error{b.published, b.slow, b.waiting, b.files} {
		require.NoError(t, measure(t.Context()))
	}
	missed := []string{}
	for _, f := range b.report.Figures {
		if f.Goal != nil && !f.Goal.Met {
			missed = append(missed, f.Name)
		}
	}
	require.Equal(t, []string{"light_open_12400_system"}, missed)
	b.run = func(context.Context, load.Spec) (load.Result, error) { return load.Result{}, errors.New("broken") }
	require.EqualError(t, b.waiting(t.Context()), "broken")
}

func TestQuickLightIsShort(t *testing.T) {
	t.Parallel()
	quick, full := newLightEffort(quickRounds), newLightEffort(fullRounds)
	require.Less(t, quick.each, full.each)
	require.Subset(t, full.levels, quick.levels)
	require.Subset(t, quick.levels, quick.peers)
}
