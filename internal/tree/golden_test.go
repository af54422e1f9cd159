package tree_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
	"belay.run/internal/tree"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at is a time some seconds after noon.
func at(seconds float64) *time.Time {
	t := noon.Add(time.Duration(seconds * float64(time.Second)))
	return &t
}

// release is a run in the middle of its work, with a node in every state.
func release() *run.Document {
	return &run.Document{
		ID: "default/default/release/r/1", RunID: "11111111-2222-3333-4444-555555555555", RunKey: "k",
		Pipeline: "release", Tenant: "default", Project: "default", Status: run.Running, StartedAt: at(0),
		Inputs: map[string]any{"tag": "v1.4.2", "env": "staging", "retries": 2},
		Stages: []run.Stage{
			{
				Name: "build", Node: "build", Status: run.Succeeded, StartedAt: at(0), EndedAt: at(75), Host: "host-1",
				Steps: []run.Step{
					{Name: "compile", Node: "build/compile", Status: run.Succeeded, Attempts: 2, StartedAt: at(1), EndedAt: at(40)},
					{Name: "unit", Node: "build/unit", Group: "checks", Status: run.Succeeded, Attempts: 1, StartedAt: at(41), EndedAt: at(74.5)},
					{
						Name: "lint", Node: "build/lint", Group: "checks", Status: run.Failed, Attempts: 1, ExitCode: new(2), Ignored: true,
						StartedAt: at(41), EndedAt: at(43.25),
						Cause: &run.Cause{Trigger: run.TriggerExitCode, Source: "build/lint", Message: "the script exited with 2"},
					},
				},
			},
			{
				Name: "deploy", Leg: run.Leg{"region": "eu"}, Node: "deploy[region=eu]", Status: run.Running, StartedAt: at(76), Host: "host-2",
				Steps: []run.Step{
					{Name: "rollout", Node: "deploy[region=eu]/rollout", Status: run.Running, Attempts: 1, StartedAt: at(77)},
					{Name: "smoke", Node: "deploy[region=eu]/smoke", Status: run.Pending},
					{Name: "report", Node: "deploy[region=eu]/report", Status: run.Pending, Finally: true},
				},
			},
			{
				Name: "deploy", Leg: run.Leg{"region": "us"}, Node: "deploy[region=us]", Status: run.Failed, StartedAt: at(76), EndedAt: at(90),
				Cause: &run.Cause{Trigger: run.TriggerExitCode, Source: "deploy[region=us]/rollout", Message: "the script exited with 3"},
				Steps: []run.Step{
					{
						Name: "rollout", Node: "deploy[region=us]/rollout", Status: run.Failed, Attempts: 3, ExitCode: new(3), StartedAt: at(77), EndedAt: at(90),
						Cause: &run.Cause{Trigger: run.TriggerExitCode, Source: "deploy[region=us]/rollout", Message: "the script exited with 3"},
					},
					{
						Name: "smoke", Node: "deploy[region=us]/smoke", Status: run.Skipped,
						Cause: &run.Cause{Trigger: run.TriggerDependencyFailed, Source: "deploy[region=us]/rollout"},
					},
				},
			},
			{
				Name: "migrate", Node: "migrate", Status: run.TimedOut, StartedAt: at(76), EndedAt: at(86),
				Cause: &run.Cause{Trigger: run.TriggerStageTimeout, Source: "migrate", Message: "the stage's timeout of 10s is over"},
				Steps: []run.Step{
					{
						Name: "up", Node: "migrate/up", Status: run.Cancelled, Attempts: 1, StartedAt: at(77), EndedAt: at(86),
						Cause: &run.Cause{Trigger: run.TriggerStageTimeout, Source: "migrate"},
					},
				},
			},
			{
				Name: "publish", Node: "publish", Status: run.Pending,
				WaitingFor: &run.WaitingFor{Kind: "worker", Name: "belay-steps-gpu", Since: at(80)},
			},
			{
				Name: "notify", Node: "notify", Status: run.Skipped,
				Cause: &run.Cause{Trigger: run.TriggerDependencyFailed, Source: "migrate"},
			},
		},
	}
}

// someLogs are the last lines of the steps that have any.
func someLogs(node string, n int) []string {
	var lines []string
	switch node {
	case "deploy[region=eu]/rollout":
		for i := range 8 {
			lines = append(lines, fmt.Sprintf("%d of 8 pods are ready", i+1))
		}
	case "deploy[region=us]/rollout":
		for i := range 12 {
			lines = append(lines, fmt.Sprintf("try %d: the load balancer gives no answer within its time limit of five seconds", i+1))
		}
	}
	return lines[max(len(lines)-n, 0):]
}

func view(d *run.Document) *tree.View {
	return &tree.View{
		Run: d, Now: noon.Add(95 * time.Second), Tail: someLogs,
		MaxAttempts: map[string]int{"build/compile": 3, "deploy/rollout": 3},
	}
}

func draw(v *tree.View, st tree.Style) string {
	return strings.Join(v.Lines(st), "\n") + "\n"
}

func TestGoldenTree(t *testing.T) {
	t.Parallel()
	ended := release()
	ended.Status, ended.EndedAt = run.Failed, at(95)
	ended.Cause = ended.Stages[2].Cause
	withNotice := view(release())
	withNotice.Notice = "asked the run to cancel; Ctrl-C again leaves it to end by itself"
	for name, text := range map[string]string{
		"unbounded":     draw(view(release()), tree.Style{}),
		"width_40":      draw(view(release()), tree.Style{Width: 40}),
		"height_16":     draw(view(release()), tree.Style{Width: 100, Height: 16}),
		"height_10":     draw(view(release()), tree.Style{Width: 100, Height: 10}),
		"height_5":      draw(view(release()), tree.Style{Width: 100, Height: 5}),
		"ascii":         draw(view(release()), tree.Style{Width: 60, ASCII: true}),
		"colour":        draw(view(release()), tree.Style{Width: 80, Colour: true}),
		"notice":        draw(withNotice, tree.Style{Width: 80, Height: 8}),
		"many_stages":   draw(view(manyStages(300)), tree.Style{Width: 80, Height: 24}),
		"wide_stage":    draw(view(wideStage(200)), tree.Style{Width: 80, Height: 24}),
		"long_sequence": draw(view(longStage(1000)), tree.Style{Width: 80, Height: 24}),
		"ended":         draw(view(ended), tree.Style{Width: 100}) + tree.Summary(ended, noon, tree.Style{}) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden(t, name, text)
		})
	}
}

// manyStages is a pipeline of n stages, a third of which ended, some badly.
func manyStages(n int) *run.Document {
	d := &run.Document{Pipeline: "many", Status: run.Running, StartedAt: at(0)}
	for i := range n {
		s := run.Stage{Name: fmt.Sprintf("s%03d", i), Node: fmt.Sprintf("s%03d", i), Status: run.Pending}
		switch {
		case i == 17:
			s.Status, s.StartedAt, s.EndedAt = run.Failed, at(1), at(2)
			s.Cause = &run.Cause{Trigger: run.TriggerExitCode, Source: s.Node + "/a"}
			s.Steps = []run.Step{{Name: "a", Node: s.Node + "/a", Status: run.Failed, Attempts: 1, ExitCode: new(1), StartedAt: at(1), EndedAt: at(2), Cause: s.Cause}}
		case i < n/3:
			s.Status, s.StartedAt, s.EndedAt = run.Succeeded, at(1), at(2)
			s.Steps = []run.Step{{Name: "a", Node: s.Node + "/a", Status: run.Succeeded, Attempts: 1, StartedAt: at(1), EndedAt: at(2)}}
		case i < n/3+4:
			s.Status, s.StartedAt = run.Running, at(90)
			s.Steps = []run.Step{{Name: "a", Node: s.Node + "/a", Status: run.Running, Attempts: 1, StartedAt: at(91)}}
		}
		d.Stages = append(d.Stages, s)
	}
	return d
}

// wideStage is a stage of n parallel steps that all run.
func wideStage(n int) *run.Document {
	s := run.Stage{Name: "wide", Node: "wide", Status: run.Running, StartedAt: at(0)}
	for i := range n {
		name := fmt.Sprintf("p%03d", i)
		s.Steps = append(s.Steps, run.Step{Name: name, Node: "wide/" + name, Group: "all", Status: run.Running, Attempts: 1, StartedAt: at(1)})
	}
	return &run.Document{Pipeline: "wide", Status: run.Running, StartedAt: at(0), Stages: []run.Stage{s}}
}

// longStage is a stage of n steps in a row, half of which ended.
func longStage(n int) *run.Document {
	s := run.Stage{Name: "long", Node: "long", Status: run.Running, StartedAt: at(0)}
	for i := range n {
		name := fmt.Sprintf("t%04d", i)
		p := run.Step{Name: name, Node: "long/" + name, Status: run.Pending}
		switch {
		case i < n/2:
			p.Status, p.Attempts, p.StartedAt, p.EndedAt = run.Succeeded, 1, at(1), at(2)
		case i == n/2:
			p.Status, p.Attempts, p.StartedAt = run.Running, 1, at(90)
		}
		s.Steps = append(s.Steps, p)
	}
	return &run.Document{Pipeline: "long", Status: run.Running, StartedAt: at(0), Stages: []run.Stage{s}}
}
