package tree

import (
	"fmt"
	"strings"

	"belay.run/internal/run"
)

// span is a piece of a line in one colour.
type span struct {
	colour colour
	text   string
}

// line is what is drawn in one line, before it is cut to the width.
type line []span

// maxNames bounds the column of names, so that one long name does not push all
// else out of sight.
const maxNames = 44

// canvas collects the lines of a drawing.
type canvas struct {
	style Style
	view  *View
	names int
	lines []string
}

// add cuts a line to the width and paints it.
func (c *canvas) add(l line) {
	var b strings.Builder
	left := c.style.Width
	for _, s := range l {
		text := s.text
		if c.style.Width > 0 {
			text = c.style.fit(text, left)
			left -= columns(text)
		}
		b.WriteString(c.style.paint(s.colour, text))
		if c.style.Width > 0 && left <= 0 {
			break
		}
	}
	c.lines = append(c.lines, strings.TrimRight(b.String(), " "))
}

// children draws what is under it, depth levels in.
func (c *canvas) children(it *item, depth int) {
	in := strings.Repeat("  ", depth)
	it.visit(func(child *item) {
		switch {
		case child.node():
			c.node(child, in)
		case child.group != "":
			c.add(line{{dim, in + "  " + Clean(child.group)}})
		case child.log:
			c.add(line{{dim, in + c.style.bar() + " "}, {child.colour, child.text}})
		default:
			c.add(line{{child.colour, in + child.text}})
		}
		c.children(child, depth+1)
	}, func(more map[run.Status]int) {
		c.add(line{{dim, in + c.style.ellipsis() + " " + moreWords(more)}})
	})
}

// node draws the line of a stage or a step.
func (c *canvas) node(it *item, in string) {
	name, col := label(it), statusColour(it.status)
	nameColour := none
	switch {
	case it.status == run.Pending || it.status == run.Skipped:
		nameColour = dim
	case it.status.Bad():
		nameColour = col
	case it.step == nil:
		nameColour = bold
	}
	took, words := c.about(it)
	leaked := leakedWords(it.resources())
	l := line{{none, in}, {col, c.style.symbol(it.status) + " "}, {nameColour, name}}
	if took != "" || words != "" || leaked != "" {
		pad := c.names - columns(in) - columns(name)
		l = append(l, span{dim, strings.Repeat(" ", max(pad, 0)) + fmt.Sprintf("  %6s", took)})
	}
	if words != "" {
		l = append(l, span{none, "  "}, span{dim, words})
	}
	if leaked != "" {
		l = append(l, span{none, "  "}, span{red, leaked})
	}
	c.add(l)
}

// label is the name of a node as it stands in the tree.
func label(it *item) string {
	if it.step != nil {
		return Clean(it.step.Name)
	}
	if it.stage.Node != "" {
		return Clean(it.stage.Node)
	}
	return Clean(it.stage.Name)
}

// about is how long a node took, and what else there is to say of it.
func (c *canvas) about(it *item) (took, words string) {
	if it.step != nil {
		return elapsed(it.step.StartedAt, it.step.EndedAt, c.view.Now), facts(c.stepFacts(it))
	}
	s := it.stage
	parts := []string{stateWords(s.Status), waitingWords(s.WaitingFor, c.view.Now), elsewhere(s.Cause, s.Node, s.Status)}
	if hidden := it.hiddenSteps(); hidden > 0 {
		parts = append(parts, plural(hidden, "step"))
	}
	said := s.WaitingFor != nil && s.WaitingFor.Name == s.Host
	if s.Host != "" && !s.Status.Terminal() && !said {
		parts = append(parts, "on "+s.Host)
	}
	return elapsed(s.StartedAt, s.EndedAt, c.view.Now), facts(parts)
}

func (c *canvas) stepFacts(it *item) []string {
	p := it.step
	parts := []string{
		stateWords(p.Status),
		attemptWords(p.Attempts, c.view.MaxAttempts[it.stage.Name+"/"+p.Name]),
		waitingWords(p.WaitingFor, c.view.Now),
		elsewhere(p.Cause, p.Node, p.Status),
	}
	if p.ExitCode != nil && *p.ExitCode != 0 {
		parts = append(parts, fmt.Sprintf("exit %d", *p.ExitCode))
	}
	if p.Ignored {
		parts = append(parts, "failure ignored")
	}
	if p.Finally && it.stage.Node != run.FinallyStage {
		parts = append(parts, "finally")
	}
	if p.Rollback {
		parts = append(parts, "rollback")
	}
	return parts
}

// stateWords names the states whose sign alone says too little.
func stateWords(s run.Status) string {
	switch s {
	case run.TimedOut, run.Cancelling, run.Cancelled, run.Skipped, run.Duplicate:
		return StatusWords(s)
	case run.Pending, run.Running, run.Succeeded, run.Failed:
	}
	return ""
}

// elsewhere is the cause of a node that another node stopped. What the
// pipeline's own end did to each node is said once, for the pipeline.
func elsewhere(c *run.Cause, node string, s run.Status) string {
	if c == nil || c.Source == "" || c.Source == node || strings.HasPrefix(c.Source, node+"/") || !s.Terminal() {
		return ""
	}
	if c.Trigger == run.TriggerDependencyFailed || c.Trigger == run.TriggerUser {
		return "because of " + c.Source
	}
	return triggerWords(c.Trigger) + " of " + c.Source
}

// facts lists what there is to say of a node.
func facts(parts []string) string { return Clean(join(parts, ", ")) }

// hiddenSteps counts the steps of a stage that are not drawn and not counted in
// a line of their own.
func (it *item) hiddenSteps() int {
	if it.height() > 0 {
		return 0
	}
	return len(it.stage.Steps)
}

// moreWords counts what is left out: "12 more succeeded, 3 pending".
func moreWords(more map[run.Status]int) string {
	var parts []string
	for _, s := range run.Statuses() {
		if n := more[s]; n > 0 {
			word := StatusWords(s)
			if len(parts) == 0 {
				word = "more " + word
			}
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	return strings.Join(parts, ", ")
}

// nameColumns is the width of the column of names.
func (v *View) nameColumns(root *item, st Style) int {
	most := 0
	var walk func(it *item, depth int)
	walk = func(it *item, depth int) {
		it.visit(func(child *item) {
			if child.node() {
				most = max(most, 2*depth+columns(label(child)))
			}
			walk(child, depth+1)
		}, func(map[run.Status]int) {})
	}
	walk(root, 0)
	most = min(most, maxNames)
	if st.Width > 0 {
		most = min(most, st.Width/2)
	}
	return most
}
