package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"belay.run/internal/durations"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/tree"
)

// suggestion is what was measured of a node, and what follows from it.
type suggestion struct {
	// Node is its path; "" is the pipeline.
	Node string `json:"node"`
	// Count is how many durations are known; the others are 0 where none is.
	Count            int     `json:"count"`
	P50              float64 `json:"p50_seconds"`
	P95              float64 `json:"p95_seconds"`
	P99              float64 `json:"p99_seconds"`
	Timeout          float64 `json:"timeout_seconds"`
	SuggestedTimeout float64 `json:"suggested_timeout_seconds"`
	// SuggestedWindow is what window: auto means with the timeout as it is.
	SuggestedWindow float64 `json:"suggested_window_seconds"`
}

// measured opens the Redis that keeps durations.
func (a *app) measured(ctx context.Context, do func(context.Context, *durations.Durations) error) error {
	const why = "--suggest-timeouts needs Redis, which keeps how long runs took"
	return a.withRedis(ctx, why, func(ctx context.Context, rdb redis.UniversalClient) error {
		return do(ctx, durations.New(rdb))
	})
}

// suggest looks up the pipeline and all its steps.
func suggest(ctx context.Context, d *durations.Durations, f *validateFlags, plan *spec.Plan) ([]suggestion, error) {
	var out []suggestion
	for _, n := range timedNodes(plan) {
		q, err := d.Quantiles(ctx, durations.Subject{Tenant: f.tenant, Project: f.project, Pipeline: plan.Name, Node: n.path})
		if err != nil {
			return nil, err
		}
		s := suggestion{Node: n.path, Count: q.Count, Timeout: n.timeout.Seconds()}
		if q.Count > 0 {
			s.P50, s.P95, s.P99 = q.P50.Seconds(), q.P95.Seconds(), q.P99.Seconds()
			s.SuggestedTimeout = suggestedTimeout(q.P99).Seconds()
			s.SuggestedWindow = q.Window(n.timeout).Seconds()
		}
		out = append(out, s)
	}
	return out, nil
}

// timedNode is a node and its timeout as the file has it.
type timedNode struct {
	path    string
	timeout time.Duration
}

// timedNodes are the pipeline and the steps of all legs.
func timedNodes(plan *spec.Plan) []timedNode {
	out := []timedNode{{"", plan.Timeout}}
	add := func(stage string, steps []*spec.Step) {
		for _, s := range steps {
			out = append(out, timedNode{run.StepNode(stage, s.Name), s.Timeout})
		}
	}
	for i := range plan.Stages {
		st := &plan.Stages[i]
		legs := []run.Leg{nil}
		if st.Matrix != nil {
			legs = st.Matrix.Legs
		}
		for _, leg := range legs {
			add(run.StageNode(st.Name, leg), stepsOf(st.Steps, st.Rollback, st.Finally))
		}
	}
	add(run.FinallyStage, stepsOf(plan.Finally))
	return out
}

// suggestedTimeout is twice the p99, rounded up to what one would write.
func suggestedTimeout(p99 time.Duration) time.Duration {
	const least = 10 * time.Second
	want := max(2*p99, least)
	unit := time.Second
	for _, u := range []time.Duration{5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute} {
		if want >= 6*u {
			unit = u
		}
	}
	return (want + unit - 1).Truncate(unit)
}

func writeSuggestions(b *strings.Builder, list []suggestion) {
	rows := [][]string{{"NODE", "RUNS", "P50", "P95", "P99", "TIMEOUT", "SUGGESTED", "WINDOW AUTO"}}
	unknown := 0
	for _, s := range list {
		if s.Count == 0 {
			unknown++
			continue
		}
		name := s.Node
		if name == "" {
			name = "(the pipeline)"
		}
		row := []string{tree.Clean(name), strconv.Itoa(s.Count)}
		for _, sec := range []float64{s.P50, s.P95, s.P99, s.Timeout, s.SuggestedTimeout, s.SuggestedWindow} {
			row = append(row, tree.Duration(time.Duration(sec*float64(time.Second))))
		}
		rows = append(rows, row)
	}
	if len(rows) > 1 {
		for _, line := range tree.Table(rows) {
			b.WriteString("  " + line + "\n")
		}
	}
	if unknown > 0 {
		fmt.Fprintf(b, "  nothing was measured yet of %s: only what has a key is\n", counted(unknown, "node"))
	}
}
