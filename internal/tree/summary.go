package tree

import (
	"fmt"
	"strings"
	"time"

	"belay.run/internal/run"
)

// Summary is the last line about a run: how it ended, after how long, and why.
func Summary(d *run.Document, now time.Time, st Style) string {
	s := fmt.Sprintf("%s %s %s", st.symbol(d.Status), Clean(d.Pipeline), StatusWords(d.Status))
	took := elapsed(d.StartedAt, d.EndedAt, now)
	switch {
	case took != "" && d.Status.Terminal():
		s += " after " + took
	case took != "":
		s += " for " + took
	}
	if counts := stageWords(d); counts != "" {
		s += " (" + counts + ")"
	}
	out := st.paint(statusColour(d.Status), s)
	if why := CauseWords(d.Cause, ""); why != "" {
		out += ": " + why
	}
	return out
}

// stageWords counts the stages by how they ended: "3 succeeded, 1 failed".
func stageWords(d *run.Document) string {
	count := map[run.Status]int{}
	for i := range d.Stages {
		count[d.Stages[i].Status]++
	}
	var parts []string
	for _, s := range run.Statuses() {
		if n := count[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, StatusWords(s)))
		}
	}
	return strings.Join(parts, ", ")
}
