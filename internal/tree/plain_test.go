package tree_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
	"belay.run/internal/tree"
)

func TestPlainPrintsEachChangeOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	clock := noon
	p := tree.NewPlain(&out, func() time.Time { return clock }, map[string]int{"deploy/rollout": 3})
	d := &run.Document{Pipeline: "release", Status: run.Running, StartedAt: at(0), Stages: []run.Stage{
		{Name: "deploy", Node: "deploy", Status: run.Pending},
		{Name: "notify", Node: "notify", Status: run.Pending},
	}}
	s := &d.Stages[0]
	show := func(change func()) {
		clock = clock.Add(time.Second)
		if change != nil {
			change()
		}
		fmt.Fprintf(&out, "-- %s\n", clock.Format(time.TimeOnly))
		require.NoError(t, p.Update(d))
		clock = clock.Add(500 * time.Millisecond)
		size := out.Len()
		require.NoError(t, p.Update(d))
		require.Equal(t, size, out.Len(), "the same state is not printed twice")
	}
	show(nil)
	show(func() { s.WaitingFor = &run.WaitingFor{Kind: "host", Name: "belay-steps", Since: at(2)} })
	show(nil)
	show(func() {
		s.Status, s.StartedAt, s.Host, s.WaitingFor = run.Running, at(3), "host-1", nil
		s.Steps = []run.Step{
			{Name: "rollout", Node: "deploy/rollout", Status: run.Running, Attempts: 1, StartedAt: at(3)},
			{Name: "smoke", Node: "deploy/smoke", Status: run.Pending},
		}
	})
	show(func() { s.Steps[0].Attempts = 2 })
	show(func() {
		d.Status, d.Cause = run.Cancelling, &run.Cause{Trigger: run.TriggerUser, By: "ann@desk", Message: "wrong\ntag"}
		s.Status, s.Steps[0].Status = run.Cancelling, run.Cancelling
	})
	show(func() {
		s.Status, s.EndedAt, s.Cause, s.Notes = run.Cancelled, at(7), d.Cause, []string{"the log is not complete"}
		s.Steps[0].Status, s.Steps[0].EndedAt, s.Steps[0].Cause = run.Cancelled, at(6.5), d.Cause
		s.Steps[1].Status = run.Skipped
		d.Stages[1].Status = run.Skipped
	})
	golden(t, "plain", inUTC(out.String()))
}

// TestPlainSaysWhyANodeWaits: what has not come, and why not.
func TestPlainSaysWhyANodeWaits(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]run.WaitingFor{
		"a/b running (waiting for host h, which does not answer (3.0s))": {Kind: "lost_host", Name: "h"},
		"a/b running (waiting for a host on q (3.0s): taking stage a onto host h: no space left on device)": {
			Kind: "host", Name: "q", Reason: "taking stage a onto host h:\nno space left on device",
		},
	} {
		var out bytes.Buffer
		w.Since = at(0)
		p := tree.NewPlain(&out, func() time.Time { return *at(3) }, nil)
		d := &run.Document{Status: run.Running, Stages: []run.Stage{{
			Name: "a", Node: "a", Status: run.Running,
			Steps: []run.Step{{Name: "b", Node: "a/b", Status: run.Running, Attempts: 1, WaitingFor: &w}},
		}}}
		require.NoError(t, p.Update(d))
		require.Contains(t, out.String(), want)
		if w.Reason == "" {
			continue
		}
		said := out.Len()
		w.Reason += " (tried again)"
		require.NoError(t, p.Update(d))
		require.Equal(t, said, out.Len(), "each attempt fails in its own words")
	}
}

// inUTC makes the local times of the output those of noon in UTC.
func inUTC(s string) string {
	for i := range 20 {
		moment := noon.Add(time.Duration(i) * time.Second)
		s = string(bytes.ReplaceAll([]byte(s), []byte(moment.Local().Format(time.TimeOnly)), []byte(moment.Format(time.TimeOnly))))
	}
	return s
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestPlainReportsAWriterThatFails(t *testing.T) {
	t.Parallel()
	p := tree.NewPlain(brokenWriter{}, time.Now, nil)
	require.ErrorContains(t, p.Update(release()), "no space left on device")
}

// TestNotesOfThePipeline: they are shown wherever the run is, each once.
func TestNotesOfThePipeline(t *testing.T) {
	t.Parallel()
	d := &run.Document{
		Pipeline: "release", Status: run.Running, StartedAt: at(0), Notes: []string{"nobody checked the key"},
		Stages: []run.Stage{{Name: "deploy", Node: "deploy", Status: run.Pending}},
	}
	require.Equal(t, []string{"note: nobody checked the key", "· deploy"}, view(d).Lines(tree.Style{})[1:])

	var out bytes.Buffer
	p := tree.NewPlain(&out, func() time.Time { return noon }, nil)
	require.NoError(t, p.Update(d))
	require.NoError(t, p.Update(d))
	d.Notes = append(d.Notes, "another")
	require.NoError(t, p.Update(d))
	require.Equal(t, "         note: nobody checked the key\n         note: another\n", out.String())
}
