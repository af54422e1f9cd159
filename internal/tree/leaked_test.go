package tree_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
	"belay.run/internal/tree"
)

func gone(state run.ResourceState, names ...string) []run.Resource {
	var list []run.Resource
	for _, n := range names {
		list = append(list, run.Resource{Kind: "lock", Name: n, State: state})
	}
	return list
}

// leaky is a run that ended well, save that one step in the middle, its stage and
// the pipeline left something behind.
func leaky(steps int) *run.Document {
	d := &run.Document{Pipeline: "release", Status: run.Succeeded, StartedAt: at(0), EndedAt: at(9), Resources: gone(run.ResourceLeaked, "p")}
	d.Stages = []run.Stage{{Name: "deploy", Node: "deploy", Status: run.Succeeded, StartedAt: at(0), EndedAt: at(8)}}
	s := &d.Stages[0]
	for i := range steps {
		name := fmt.Sprintf("t%04d", i)
		s.Steps = append(s.Steps, run.Step{
			Name: name, Node: "deploy/" + name, Status: run.Succeeded, Attempts: 1, StartedAt: at(0), EndedAt: at(1),
			Resources: gone(run.ResourceReleased, "fine"),
		})
	}
	s.Steps[steps/2].Resources = append(gone(run.ResourceLeaked, "a", "b\x1b[2J", "c", "d", "e"), gone(run.ResourceReleased, "fine")...)
	return d
}

// TestWhatLeakedStandsInTheLineOfItsNode also where there is little room, and where
// all else ended well.
func TestWhatLeakedStandsInTheLineOfItsNode(t *testing.T) {
	t.Parallel()
	for _, steps := range []int{3, 40, 3000} {
		for _, height := range []int{0, 8} {
			d := leaky(steps)
			lines := view(d).Lines(tree.Style{Height: height, Width: 120})
			text := strings.Join(lines, "\n")
			require.Contains(t, lines[0], "leaked lock p", "%d steps in %d lines", steps, height)
			var line string
			for _, l := range lines {
				if strings.Contains(l, d.Stages[0].Steps[steps/2].Name) {
					line = l
				}
			}
			require.Contains(t, line, "leaked lock a, lock b", text)
			require.Contains(t, line, "and 2 more")
			require.NotContains(t, text, "\x1b")
			require.NotContains(t, text, "fine")
			require.Equal(t, 2, strings.Count(text, "leaked"), "nobody else's line says so")
		}
	}
}

func TestPlainPrintsOnceWhatLeaked(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := tree.NewPlain(&out, func() time.Time { return *at(9) }, nil)
	d := leaky(3)
	d.Resources, d.Stages[0].Steps[1].Resources = nil, gone(run.ResourceReleasing, "a")
	require.NoError(t, p.Update(d))
	require.NotContains(t, out.String(), "leaked", "it is being tried")
	d.Resources, d.Stages[0].Resources = gone(run.ResourceLeaked, "p"), gone(run.ResourceLeaked, "w")
	d.Stages[0].Steps[1].Resources = gone(run.ResourceLeaked, "a")
	require.NoError(t, p.Update(d))
	require.NoError(t, p.Update(d))
	for _, want := range []string{"deploy/t0001 leaked lock a\n", "deploy leaked lock w\n", "release leaked lock p\n"} {
		require.Equal(t, 1, strings.Count(out.String(), want), out.String())
	}
	d.Stages[0].Steps[1].Resources[0].State = run.ResourceReleased
	before := out.Len()
	require.NoError(t, p.Update(d))
	require.Equal(t, before, out.Len())
}
