package tree_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"belay.run/internal/run"
	"belay.run/internal/tree"
)

// anyDocument makes runs of all shapes, with names that nobody would give.
func anyDocument(t *rapid.T) *run.Document {
	name := rapid.StringN(1, 30, 60)
	status := rapid.SampledFrom(run.Statuses())
	d := &run.Document{Pipeline: name.Draw(t, "pipeline"), Status: status.Draw(t, "status"), StartedAt: at(0)}
	for range rapid.IntRange(0, 30).Draw(t, "stages") {
		s := run.Stage{Name: name.Draw(t, "stage"), Status: status.Draw(t, "status"), StartedAt: at(1), Host: name.Draw(t, "host")}
		s.Node = s.Name
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			p := run.Step{
				Name: name.Draw(t, "step"), Status: status.Draw(t, "status"), Attempts: rapid.IntRange(0, 4).Draw(t, "attempts"),
				Group: rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "group"),
			}
			p.Node = s.Node + "/" + p.Name
			if p.Status.Bad() {
				p.Cause = &run.Cause{Trigger: run.TriggerExitCode, Source: p.Node, Message: name.Draw(t, "message")}
			}
			s.Steps = append(s.Steps, p)
		}
		d.Stages = append(d.Stages, s)
	}
	return d
}

func TestTreeFitsAnyTerminal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := view(anyDocument(t))
		v.Tail = func(string, int) []string { return []string{"first", "second", "日本語のログ"} }
		st := tree.Style{
			Width: rapid.IntRange(1, 120).Draw(t, "width"), Height: rapid.IntRange(1, 40).Draw(t, "height"),
			Colour: rapid.Bool().Draw(t, "colour"), ASCII: rapid.Bool().Draw(t, "ascii"),
		}
		lines := v.Lines(st)
		require.LessOrEqual(t, len(lines), st.Height)
		for _, l := range lines {
			screen := newTerminal(st.Width)
			screen.write(l)
			require.LessOrEqual(t, screen.x, st.Width, "%q", l)
			require.False(t, strings.ContainsAny(l, "\r\n\t\a\b"), "%q", l)
			require.True(t, utf8.ValidString(l))
			if !st.Colour {
				require.NotContains(t, l, "\x1b")
			}
		}
	})
}

func TestTreeCountsEveryNode(t *testing.T) {
	t.Parallel()
	v := view(manyStages(300))
	lines := v.Lines(tree.Style{Width: 80, Height: 24})
	require.Len(t, lines, 24)
	shown := 0
	for _, l := range lines {
		if strings.Contains(l, " s0") || strings.Contains(l, " s1") {
			shown++
		}
	}
	require.Equal(t, 300-17-82-187, shown, "what is not shown is counted")
}

func TestTreeNeverHidesAFailureForWhatEndedWell(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(20, 200).Draw(t, "stages")
		bad := rapid.IntRange(0, n-1).Draw(t, "bad")
		d := &run.Document{Pipeline: "p", Status: run.Running, StartedAt: at(0)}
		for i := range n {
			s := run.Stage{Name: "fine", Node: "fine", Status: run.Succeeded}
			if i == bad {
				s = run.Stage{Name: "broken", Node: "broken", Status: run.Failed}
			}
			d.Stages = append(d.Stages, s)
		}
		lines := view(d).Lines(tree.Style{Width: 80, Height: rapid.IntRange(4, 15).Draw(t, "height")})
		require.Contains(t, strings.Join(lines, "\n"), "broken")
	})
}
