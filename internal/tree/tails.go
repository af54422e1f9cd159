package tree

import (
	"sync"

	"belay.run/internal/run"
)

// maxTailLine is how many bytes of a log line are kept for the tree, which
// shows no more than a terminal is wide.
const maxTailLine = 1024

// Tails keeps the last lines of each step's log. It is safe for concurrent use.
type Tails struct {
	mu    sync.Mutex
	lines map[string][]string
}

// NewTails makes an empty one.
func NewTails() *Tails {
	return &Tails{lines: map[string][]string{}}
}

// Add takes one line of a step's log, as the step wrote it.
func (t *Tails) Add(node, text string) {
	text = LastOverwrite(text)
	if len(text) > maxTailLine {
		text = text[:maxTailLine]
	}
	text = Clean(text)
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.lines[node]
	if len(kept) >= failedTail {
		copy(kept, kept[len(kept)-failedTail+1:])
		kept = kept[:failedTail-1]
	}
	t.lines[node] = append(kept, text)
}

// Last gives up to n of the last lines of a step.
func (t *Tails) Last(node string, n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.lines[node]
	if len(kept) > n {
		kept = kept[len(kept)-n:]
	}
	return append([]string(nil), kept...)
}

// Reset forgets a step's lines, for its next attempt.
func (t *Tails) Reset(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lines, node)
}

// Prune forgets the lines of steps that ended well, which are shown no more.
func (t *Tails) Prune(d *run.Document) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		return
	}
	for i := range d.Stages {
		for j := range d.Stages[i].Steps {
			if p := &d.Stages[i].Steps[j]; good(p.Status) {
				delete(t.lines, p.Node)
			}
		}
	}
}
