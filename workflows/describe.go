package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/workflow"

	"belay.run/internal/run"
)

// maxDescribed bounds the nodes listed in the details that Temporal's UI shows.
const maxDescribed = 30

// describe shows the stage in Temporal's UI: its state, and the steps that run
// or went wrong, by name.
func (s *stage) describe(ctx workflow.Context) {
	var d describer
	for i := range s.doc.Steps {
		d.add(s.doc.Steps[i].Name, s.doc.Steps[i].Status, s.doc.Steps[i].Cause)
	}
	workflow.SetCurrentDetails(ctx, d.markdown(s.doc.Status, s.doc.Cause, s.doc.WaitingFor))
}

// describe shows the run in Temporal's UI, stage by stage.
func (p *pipeline) describe(ctx workflow.Context) {
	var d describer
	for _, n := range p.nodes {
		for _, l := range n.legs {
			d.add(l.doc.Node, l.doc.Status, l.doc.Cause)
		}
	}
	workflow.SetCurrentDetails(ctx, d.markdown(p.doc.Status, p.doc.Cause, p.doc.WaitingFor))
}

// describer collects the lines and counts of a description.
type describer struct {
	lines  []string
	counts map[run.Status]int
}

func (d *describer) add(name string, status run.Status, cause *run.Cause) {
	if d.counts == nil {
		d.counts = map[run.Status]int{}
	}
	d.counts[status]++
	if (status == run.Running || status == run.Cancelling || status.Bad()) && len(d.lines) < maxDescribed {
		line := fmt.Sprintf("- `%s` **%s**", name, status)
		if cause != nil {
			line += ": " + cause.String()
		}
		d.lines = append(d.lines, line)
	}
}

func (d *describer) markdown(status run.Status, cause *run.Cause, waiting *run.WaitingFor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**", status)
	if cause != nil {
		fmt.Fprintf(&b, ": %s", cause)
	}
	if waiting != nil {
		fmt.Fprintf(&b, ", waiting for %s %s", waiting.Kind, waiting.Name)
		if waiting.Position > 0 {
			fmt.Fprintf(&b, " (place %d, held by `%s`)", waiting.Position, waiting.Holder)
		}
	}
	b.WriteString("\n\n" + d.counted() + "\n\n" + strings.Join(d.lines, "\n"))
	return b.String()
}

// counted says how many nodes are in which state.
func (d *describer) counted() string {
	var b strings.Builder
	for _, s := range run.Statuses() {
		if d.counts[s] > 0 {
			fmt.Fprintf(&b, "%d %s  ", d.counts[s], s)
		}
	}
	return b.String()
}
