// Package tree draws a run for people: as a tree that is redrawn in place on a
// terminal, and as plain lines everywhere else.
package tree

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"belay.run/internal/run"
)

// How many of the last log lines are shown under a step.
const (
	runningTail = 5
	failedTail  = 10
	// eagerSteps bounds the steps that are drawn one by one where their stage
	// has ended well; in a larger run such stages are one line each.
	eagerSteps = 2000
)

// View is what is known of a run at one moment.
type View struct {
	Run *run.Document
	Now time.Time
	// Tail gives up to n of the last log lines of a step; nil shows none.
	Tail func(node string, n int) []string
	// MaxAttempts is how often a step is tried, by "stage/step"; where it is not
	// known only the attempts made are shown.
	MaxAttempts map[string]int
	// Notice is a line for the person at the keyboard, under the tree.
	Notice string
}

// Lines draws the run, in at most st.Height lines of at most st.Width columns.
// What is left out for want of room is counted in a line of its own: first what
// ended well, then what has not begun, last what failed.
func (v *View) Lines(st Style) []string {
	root := v.items()
	head := []line{v.headLine(st)}
	var foot []line
	if v.Notice != "" {
		foot = append(foot, line{{none, ""}, {bold, Clean(v.Notice)}})
	}
	if st.Height > 0 {
		fold(root, max(st.Height-len(head)-len(foot), 1))
	}
	c := canvas{style: st, view: v, names: v.nameColumns(root, st)}
	for _, l := range head {
		c.add(l)
	}
	c.children(root, 0)
	for _, l := range foot {
		c.add(l)
	}
	if st.Height > 0 && len(c.lines) > st.Height {
		c.lines = c.lines[:st.Height]
	}
	return c.lines
}

// headLine is the pipeline's own line.
func (v *View) headLine(st Style) line {
	d := v.Run
	done := 0
	for i := range d.Stages {
		if d.Stages[i].Status.Terminal() {
			done++
		}
	}
	l := line{
		{statusColour(d.Status), st.symbol(d.Status) + " "},
		{bold, Clean(d.Pipeline)},
		{none, "  "},
		{statusColour(d.Status), StatusWords(d.Status)},
		{dim, "  " + elapsed(d.StartedAt, d.EndedAt, v.Now)},
		{dim, fmt.Sprintf("  %d of %s", done, plural(len(d.Stages), "stage"))},
	}
	if w := waitingWords(d.WaitingFor, v.Now); w != "" {
		l = append(l, span{yellow, "  " + w})
	}
	if w := leakedWords(d.Resources); w != "" {
		l = append(l, span{red, "  " + w})
	}
	if in := InputWords(d.Inputs); in != "" {
		l = append(l, span{dim, "  " + in})
	}
	return l
}

// InputWords lists inputs as k=v, sorted.
func InputWords(inputs map[string]any) string {
	parts := make([]string, 0, len(inputs))
	for _, k := range slices.Sorted(maps.Keys(inputs)) {
		parts = append(parts, fmt.Sprintf("%s=%v", k, inputs[k]))
	}
	return Clean(strings.Join(parts, " "))
}

// elapsed is how long something took, or has been going on.
func elapsed(start, end *time.Time, now time.Time) string {
	switch {
	case start == nil:
		return ""
	case end != nil:
		return Duration(end.Sub(*start))
	}
	return Duration(now.Sub(*start))
}

// items builds the tree of what there is to draw.
func (v *View) items() *item {
	root := &item{}
	steps := 0
	for i := range v.Run.Stages {
		steps += len(v.Run.Stages[i].Steps)
	}
	root.addNotes(v.Run.Notes)
	for i := range v.Run.Stages {
		s := &v.Run.Stages[i]
		it := &item{stage: s, status: s.Status, rank: stageRank(s.Status)}
		it.keepLeaked()
		root.children = append(root.children, it)
		if good(s.Status) && steps > eagerSteps && !it.left() {
			continue
		}
		it.causeNote(s.Cause, s.Node, s.Status)
		v.addSteps(it, s)
		it.addNotes(s.Notes)
	}
	return root
}

// addSteps puts the steps of a stage under it, those of a group under a line
// that names the group.
func (v *View) addSteps(it *item, s *run.Stage) {
	var group *item
	for i := range s.Steps {
		p := &s.Steps[i]
		step := &item{step: p, stage: s, status: p.Status, rank: stepRank(p.Status), silent: good(s.Status)}
		if step.silent {
			step.rank = rankDoneStageSteps
		}
		step.keepLeaked()
		step.causeNote(p.Cause, p.Node, p.Status)
		v.addTail(step, p)
		switch {
		case p.Group == "":
			group = nil
			it.children = append(it.children, step)
			continue
		case group == nil || group.group != p.Group:
			group = &item{group: p.Group}
			it.children = append(it.children, group)
		}
		group.children = append(group.children, step)
	}
}

// addTail puts the last log lines of a step under it.
func (v *View) addTail(it *item, p *run.Step) {
	n := 0
	switch p.Status {
	case run.Running, run.Cancelling:
		n = runningTail
	case run.Failed, run.TimedOut:
		n = failedTail
	case run.Pending, run.Succeeded, run.Cancelled, run.Skipped, run.Duplicate:
	}
	if v.Tail == nil || n == 0 {
		return
	}
	lines := v.Tail(p.Node, n)
	for i, text := range lines {
		l := &item{text: text, log: true, rank: rankLogs, colour: dim}
		left := len(lines) - i // 1 for the last
		switch {
		case p.Status.Bad() && left <= 3:
			l.rank = rankFailedLogs
		case left > n/2:
			l.rank = rankOldLogs
		}
		if p.Status.Bad() {
			l.colour = none
		}
		it.children = append(it.children, l)
	}
}

// causeNote says under a node why it stopped, where the cause arose.
func (it *item) causeNote(c *run.Cause, node string, s run.Status) {
	if c == nil || c.Source != node || good(s) {
		return
	}
	it.children = append(it.children, &item{text: CauseWords(c, node), rank: rankNotes, colour: statusColour(s)})
}

// addNotes puts warnings under a node.
func (it *item) addNotes(notes []string) {
	for _, n := range notes {
		it.children = append(it.children, &item{text: "note: " + Clean(n), rank: rankNotes, colour: yellow})
	}
}

// good reports whether nobody needs to look at a node that ended in s.
func good(s run.Status) bool {
	return s.OK() || s == run.Skipped
}
