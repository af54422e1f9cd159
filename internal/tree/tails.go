package tree

import (
	"bytes"
	"slices"
	"sync"

	"belay.run/internal/run"
)

// maxTailLine is how many bytes of a log line are kept for the tree, which
// shows no more than a terminal is wide.
const maxTailLine = 1024

// Tails keeps the last lines of each step's log, as much as the tree shows. It
// is safe for concurrent use.
type Tails struct {
	mu    sync.Mutex
	nodes map[string]*tail
}

// tail is the end of one step's log.
type tail struct {
	attempt int
	lines   []string
	part    []byte // of the line that has not ended
}

// NewTails makes an empty one.
func NewTails() *Tails {
	return &Tails{nodes: map[string]*tail{}}
}

// Write takes a piece of what an attempt of a step printed. A new attempt begins
// anew.
func (t *Tails) Write(node string, attempt int, data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	if n == nil || n.attempt != attempt {
		n = &tail{attempt: attempt}
		t.nodes[node] = n
	}
	n.write(data)
}

func (n *tail) write(data []byte) {
	// Of a burst only the last lines count.
	if skip := lastLines(data, failedTail+1); skip > 0 {
		n.part, data = nil, data[skip:]
	}
	for {
		line, rest, ended := bytes.Cut(data, []byte{'\n'})
		n.keepPart(line)
		if !ended {
			return
		}
		n.lines = append(n.lines, shown(n.part))
		if len(n.lines) > failedTail {
			n.lines = slices.Delete(n.lines, 0, len(n.lines)-failedTail)
		}
		n.part, data = nil, rest
	}
}

// keepPart adds to the line that has not ended: after a carriage return only
// what overwrites it, and never more than is shown.
func (n *tail) keepPart(p []byte) {
	if i := bytes.LastIndexByte(bytes.TrimRight(p, "\r"), '\r'); i >= 0 {
		n.part, p = nil, p[i+1:]
	} else if len(n.part) > 0 && n.part[len(n.part)-1] == '\r' && len(p) > 0 {
		n.part = nil
	}
	room := max(maxTailLine-len(n.part), 0)
	n.part = append(n.part, p[:min(len(p), room)]...)
}

// lastLines is where the last n lines of data begin.
func lastLines(data []byte, n int) int {
	at := len(data)
	for range n {
		i := bytes.LastIndexByte(data[:at], '\n')
		if i < 0 {
			return 0
		}
		at = i
	}
	return at + 1
}

// shown is a line as the tree shows it.
func shown(line []byte) string {
	return Clean(LastOverwrite(string(line)))
}

// Last gives up to n of the last lines of a step.
func (t *Tails) Last(node string, n int) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.nodes[node]
	if kept == nil {
		return nil
	}
	lines := slices.Clone(kept.lines)
	if len(kept.part) > 0 {
		lines = append(lines, shown(kept.part))
	}
	return lines[max(len(lines)-n, 0):]
}

// Prune forgets the lines of steps that ended well, which are shown no more.
func (t *Tails) Prune(d *run.Document) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.nodes) == 0 {
		return
	}
	for i := range d.Stages {
		for j := range d.Stages[i].Steps {
			if p := &d.Stages[i].Steps[j]; good(p.Status) {
				delete(t.nodes, p.Node)
			}
		}
	}
}
