package tree_test

import (
	"fmt"
	"testing"

	"belay.run/internal/run"
	"belay.run/internal/tree"
)

// BenchmarkLines draws large runs: it happens several times a second.
func BenchmarkLines(b *testing.B) {
	huge := manyStages(500)
	for i := range huge.Stages {
		s := &huge.Stages[i]
		for j := len(s.Steps); j < 1000 && s.Status != run.Pending; j++ {
			name := fmt.Sprintf("t%04d", j)
			s.Steps = append(s.Steps, run.Step{Name: name, Node: s.Node + "/" + name, Status: run.Succeeded, Attempts: 1, StartedAt: at(1), EndedAt: at(2)})
		}
	}
	for name, d := range map[string]*run.Document{
		"release": release(), "300_stages": manyStages(300), "1000_steps": longStage(1000), "500x1000": huge,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				view(d).Lines(tree.Style{Width: 100, Height: 40, Colour: true})
			}
		})
	}
}
