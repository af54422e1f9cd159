package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/spec"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 2.0, median([]float64{3, 1, 2}), 0)
	require.InDelta(t, 2.5, median([]float64{4, 1, 3, 2}), 0)
	require.InDelta(t, 7.0, median([]float64{7}), 0)
}

// TestMeasure checks the order of the sides, that the warm-up does not count,
// and that the ratio is the median over rounds, not of the medians.
func TestMeasure(t *testing.T) {
	t.Parallel()
	var order string
	side := func(name string, values ...float64) func(context.Context) (float64, error) {
		return func(context.Context) (float64, error) {
			v := values[0]
			values = values[1:]
			order += name
			return v, nil
		}
	}
	s := subject{
		name: "it", unit: "ms", peer: "the other",
		ours:   side("o", 1000, 10, 90, 40),
		theirs: side("t", 1000, 1, 90, 20),
	}
	f, err := s.measure(t.Context(), 3, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "ottootto", order)
	require.Equal(t, Figure{
		Name: "it", Value: 40, Unit: "ms", Min: 10, Max: 90, Peer: "the other", PeerValue: 20, Ratio: 2,
	}, f)
}

func TestMeasureSaysWhoFailed(t *testing.T) {
	t.Parallel()
	fine := func(context.Context) (float64, error) { return 1, nil }
	broken := func(context.Context) (float64, error) { return 0, errors.New("broken") }
	_, err := subject{name: "it", ours: broken, theirs: fine}.measure(t.Context(), 1, io.Discard)
	require.EqualError(t, err, "measuring it: broken")
	_, err = subject{name: "it", ours: fine, theirs: broken}.measure(t.Context(), 1, io.Discard)
	require.EqualError(t, err, "measuring it: the peer: broken")
}

// TestReport pins the document that is compared over time.
func TestReport(t *testing.T) {
	t.Parallel()
	r := &Report{Bench: "it", Machine: "one", Rounds: 3, Figures: []Figure{{Name: "f", Value: 12.34, Unit: "ms", Peer: "the other"}}}
	var out bytes.Buffer
	require.NoError(t, r.writeJSON(&out))
	require.JSONEq(t, `{"bench": "it", "machine": "one", "rounds": 3, "figures": [{
		"name": "f", "value": 12.34, "unit": "ms", "min": 0, "max": 0, "peer": "the other", "peer_value": 0, "ratio": 0
	}]}`, out.String())

	out.Reset()
	require.NoError(t, r.writeTable(&out))
	require.Contains(t, out.String(), "12.3 ms")
	require.Contains(t, out.String(), "the other")
}

func TestUnknownName(t *testing.T) {
	t.Parallel()
	err := measureAll(t.Context(), "speed", 1, "text", io.Discard, io.Discard)
	require.EqualError(t, err, `"speed" is no benchmark: want one of start|pipeline|validate|dedup|cancel|batch|light|all`)
	err = measureAll(t.Context(), "all", 1, "xml", io.Discard, io.Discard)
	require.EqualError(t, err, `"xml" is not an output format: text or json`)
}

// TestFiles holds what is measured to what it is called.
func TestFiles(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text          string
		stages, steps int
	}{
		"big":        {string(bigFile(2, 1000)), 2, 2000},
		"sequence":   {sequence("uses: noop"), 1, 100},
		"shell":      {sequence("run: ':'"), 1, 100},
		"parallel":   {parallel(10, 100, "uses: noop"), 10, 1000},
		"one single": {parallel(1, 1, "uses: noop"), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, report := spec.Parse(name, []byte(tc.text))
			require.NoError(t, report.Err())
			plan, err := file.Plan(nil)
			require.NoError(t, err)
			require.Len(t, plan.Stages, tc.stages)
			steps := 0
			for _, stage := range plan.Stages {
				for _, step := range stage.Steps {
					steps += max(1, len(step.Parallel))
				}
			}
			require.Equal(t, tc.steps, steps)
		})
	}
}

func TestMachine(t *testing.T) {
	t.Parallel()
	info := filepath.Join(t.TempDir(), "cpuinfo")
	require.NoError(t, os.WriteFile(info, []byte("processor\t: 0\nmodel name\t: Fast One\n"), 0o600))
	require.Equal(t, "Fast One", cpu(info))
	require.Equal(t, "CPU", cpu("/nowhere"))
	require.NotEmpty(t, machine())
}

func TestResidentTree(t *testing.T) {
	t.Parallel()
	bytes, err := residentTree(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, bytes, int64(1<<20))
	_, err = residentTree(1 << 30)
	require.ErrorContains(t, err, "measuring memory")
}

func TestP99(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 3.0, p99([]float64{3, 1, 2}), 0, "of few it is the largest")
	many := make([]float64, 200)
	for i := range many {
		many[i] = float64(i + 1)
	}
	require.InDelta(t, 198.0, p99(many), 0)
}

// TestTails holds that a benchmark of tails gives a median and a p99 of the same
// samples, three for each round.
func TestTails(t *testing.T) {
	t.Parallel()
	n := 0.0
	count := func(context.Context) (float64, error) { n++; return n, nil }
	one := func(context.Context) (float64, error) { return 1, nil }
	figures, err := bench{tails: true}.measure(t.Context(), subject{name: "it", ours: count, theirs: one}, 2, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"it_p50", "it_p99"}, []string{figures[0].Name, figures[1].Name})
	require.InDelta(t, 4.5, figures[0].Value, 0, "2 to 7: the first is to warm up")
	require.InDelta(t, 7.0, figures[1].Value, 0)
}
