package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/logs"
	"belay.run/internal/run"
	"belay.run/internal/tree"
	"belay.run/starter/runs"
)

// screen is what was written to a terminal.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
	err error
}

// Write takes output.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	return s.buf.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func liveOn(s *screen, width, height int) *live {
	return newLive(s, &terminal{size: func() (int, int) { return width, height }}, nil)
}

func snapshot(steps int, status run.Status) *runs.Snapshot {
	start := time.Now()
	d := &run.Document{Pipeline: "p", Status: run.Running, StartedAt: &start, Stages: []run.Stage{{
		Name: "s", Node: "s", Status: run.Running, StartedAt: &start,
	}}}
	for i := range steps {
		name := fmt.Sprintf("step%02d", i)
		d.Stages[0].Steps = append(d.Stages[0].Steps, run.Step{Name: name, Node: "s/" + name, Status: status, StartedAt: &start})
	}
	return &runs.Snapshot{Document: d}
}

func TestLiveShowsStateLogsAndNotices(t *testing.T) {
	t.Parallel()
	s := &screen{}
	l := liveOn(s, 80, 24)
	require.NoError(t, l.log(logs.Record{Node: "s/step00", Attempt: 1, Stream: logs.Stdout, Data: []byte("half a li")}))
	require.NoError(t, l.log(logs.Record{Node: "s/step00", Attempt: 1, Stream: logs.System, Data: []byte("said by belay\n")}))
	require.NoError(t, l.show(snapshot(1, run.Running)))
	require.Contains(t, s.String(), "step00")
	require.Contains(t, s.String(), "half a li")
	require.NotContains(t, s.String(), "said by belay")
	l.notice("asked the run to cancel")
	require.Contains(t, s.String(), "asked the run to cancel")
	snap := snapshot(1, run.Running)
	snap.NoAnswer = "no worker answers"
	require.NoError(t, l.show(snap))
	require.Contains(t, s.String(), "no worker answers: what is shown")
	before := len(s.String())
	require.NoError(t, l.finish(snapshot(1, run.Succeeded).Document))
	last := s.String()[before:]
	require.Contains(t, last, "step00")
	require.NotContains(t, last, "asked the run")
	require.NotContains(t, last, "no worker answers")
	done := len(s.String())
	require.Equal(t, strings.Count(s.String(), "\x1b[?2026h"), strings.Count(s.String(), "\x1b[?2026l"))
	require.Len(t, s.String(), done, "nothing is drawn after the end")
}

func TestLiveTicks(t *testing.T) {
	t.Parallel()
	s := &screen{}
	l := liveOn(s, 80, 24)
	require.NoError(t, l.show(snapshot(1, run.Running)))
	first := len(s.String())
	require.Eventually(t, func() bool { return len(s.String()) > first }, time.Minute, time.Millisecond, "time goes on by itself")
	require.NoError(t, l.finish(nil))
}

func TestLiveFoldsWhileItRunsAndShowsAllInTheEnd(t *testing.T) {
	t.Parallel()
	s := &screen{}
	l := liveOn(s, 80, 10)
	require.NoError(t, l.show(snapshot(40, run.Pending)))
	require.NotContains(t, s.String(), "step39")
	require.Contains(t, s.String(), "more pending")
	require.NoError(t, l.finish(nil))
	require.Contains(t, s.String(), "step39")
}

func TestDisplaysReportAnOutputThatFails(t *testing.T) {
	t.Parallel()
	gone := errors.New("no space left on device")
	l := liveOn(&screen{err: gone}, 80, 24)
	require.ErrorIs(t, l.show(snapshot(1, run.Running)), gone)
	require.ErrorIs(t, l.finish(nil), gone)
	p := newLines(&screen{err: gone}, nil)
	require.ErrorIs(t, p.show(snapshot(1, run.Running)), gone)
	require.NoError(t, p.finish(nil))
}

func TestLinesSayOnceThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	s := &screen{}
	l := newLines(s, nil)
	snap := snapshot(1, run.Running)
	snap.NoAnswer = "no worker answers"
	for range 3 {
		require.NoError(t, l.show(snap))
	}
	require.NoError(t, l.finish(nil))
	require.Equal(t, 1, strings.Count(s.String(), "no worker answers"))
}

func TestHeldLogsStayInOrder(t *testing.T) {
	t.Parallel()
	var h heldLogs
	known := map[string]bool{"a": true}
	shown := func(node string) bool { return known[node] }
	for i, node := range []string{"a", "b", "a"} {
		h.add(logs.Record{Node: node, Data: fmt.Appendf(nil, "%d", i)})
	}
	require.False(t, h.due(shown))
	known["b"] = true
	require.True(t, h.due(shown))
	var got string
	require.NoError(t, h.drain(func(r logs.Record) error {
		got += string(r.Data)
		return nil
	}))
	require.Equal(t, "012", got)
	require.True(t, h.empty())
	h.add(logs.Record{Node: "c", Data: make([]byte, heldMost+1)})
	require.True(t, h.due(shown), "too much to wait")
	h = heldLogs{records: []logs.Record{{Node: "c"}}, since: time.Now().Add(-2 * heldFor)}
	require.True(t, h.due(shown), "waited long enough")
}

func TestStyle(t *testing.T) {
	t.Parallel()
	require.Nil(t, terminalOf(&bytes.Buffer{}))
	require.False(t, terminalOf(&bytes.Buffer{}).redraws())
	require.Equal(t, tree.Style{ASCII: !utf8Locale()}, styleOf(&bytes.Buffer{}))
}
