package tree

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"belay.run/internal/run"
)

// Plain prints a run as lines that are never taken back, one for each change of
// a node's state, and for each wait that lasts. It is not safe for concurrent
// use.
type Plain struct {
	w    io.Writer
	now  func() time.Time // for changes that bear no time of their own
	most map[string]int
	seen map[string]seen
	// leaked is what was last printed to have leaked, by node.
	leaked map[string]string
	// noted is how many notes of the pipeline itself were printed.
	noted int
	err   error
}

// seen is the last that was printed of a node.
type seen struct {
	status   run.Status
	attempts int
	waiting  string
}

// NewPlain prints to w. maxAttempts is as in View.
func NewPlain(w io.Writer, now func() time.Time, maxAttempts map[string]int) *Plain {
	return &Plain{w: w, now: now, most: maxAttempts, seen: map[string]seen{}, leaked: map[string]string{}}
}

// Update prints what has changed since the last call; a wait begins to last by
// itself, so that it also has news where the document has none. It returns the
// first error of the writer.
func (p *Plain) Update(d *run.Document) error {
	for i := range d.Stages {
		s := &d.Stages[i]
		p.stage(s)
		for j := range s.Steps {
			p.step(s, &s.Steps[j])
			p.left(s.Steps[j].Node, Clean(s.Steps[j].Node), s.Steps[j].Resources)
		}
		if s.Status.Terminal() {
			p.ended(s)
		}
		p.left(s.Node, label(&item{stage: s}), s.Resources)
	}
	p.pipeline(d)
	p.left("", Clean(d.Pipeline), d.Resources)
	return p.err
}

// Shown reports whether a line has said that a node began.
func (p *Plain) Shown(node string) bool {
	s := p.seen[node].status
	return s != "" && s != run.Pending
}

// pipeline prints the notes of the pipeline itself, what it waits for, and that it
// is ending. Its end is the summary's.
func (p *Plain) pipeline(d *run.Document) {
	if p.noted < len(d.Notes) {
		p.notes(d.Notes[p.noted:])
		p.noted = len(d.Notes)
	}
	wait := p.lasting(d.WaitingFor)
	old, is := p.seen[""], seen{status: d.Status, waiting: waitingKey(wait)}
	if old == is {
		return
	}
	p.seen[""] = is
	switch {
	case d.Status == run.Cancelling && old.status != d.Status:
		p.change(nil, Clean(d.Pipeline), "cancelling", CauseWords(d.Cause, ""))
	case is.waiting != "" && is.waiting != old.waiting:
		p.change(nil, Clean(d.Pipeline), waitingWords(wait, p.now()), "")
	}
}

// stage prints that a stage began, is being cancelled, or waits.
func (p *Plain) stage(s *run.Stage) {
	if s.Status == run.Pending || s.Status.Terminal() {
		p.waits(s.Node, s.Status, s.WaitingFor)
		return
	}
	if p.seen[s.Node].status == s.Status {
		p.waits(s.Node, s.Status, s.WaitingFor)
		return
	}
	wait := p.lasting(s.WaitingFor)
	p.seen[s.Node] = seen{status: s.Status, waiting: waitingKey(wait)}
	host := ""
	if s.Host != "" {
		host = "on " + s.Host
	}
	p.change(began(s.Status, s.StartedAt), label(&item{stage: s}), StatusWords(s.Status), facts([]string{host, waitingWords(wait, p.now())}))
}

// ended prints that a stage ended, after what its steps did.
func (p *Plain) ended(s *run.Stage) {
	if p.seen[s.Node].status == s.Status {
		return
	}
	p.seen[s.Node] = seen{status: s.Status}
	p.change(s.EndedAt, label(&item{stage: s}), StatusWords(s.Status),
		facts([]string{took(s.StartedAt, s.EndedAt), CauseWords(s.Cause, s.Node)}))
	p.notes(s.Notes)
}

func (p *Plain) notes(notes []string) {
	for _, n := range notes {
		p.printf("         note: %s", Clean(n))
	}
}

// step prints a change of a step.
func (p *Plain) step(s *run.Stage, t *run.Step) {
	wait := p.lasting(t.WaitingFor)
	old := p.seen[t.Node]
	is := seen{status: t.Status, attempts: t.Attempts, waiting: waitingKey(wait)}
	if t.Status.Terminal() || t.Status == run.Pending {
		is.attempts, is.waiting = 0, ""
	}
	if old == is || t.Status == run.Pending && old.status == "" {
		return
	}
	p.seen[t.Node] = is
	at := began(t.Status, t.StartedAt)
	said := []string{attemptWords(t.Attempts, p.most[s.Name+"/"+t.Name])}
	if t.Status.Terminal() {
		at = t.EndedAt
		said = append(said, took(t.StartedAt, t.EndedAt), CauseWords(t.Cause, t.Node))
		if t.Ignored {
			said = append(said, "failure ignored")
		}
	} else {
		said = append(said, waitingWords(wait, p.now()))
		if old.status == t.Status {
			at = nil
		}
	}
	p.change(at, Clean(t.Node), StatusWords(t.Status), facts(said))
}

// left prints what a node could not give back. That it is given back after all is
// worth no line: the run goes on, or is over.
func (p *Plain) left(node, name string, list []run.Resource) {
	is := leakedWords(list)
	if is == p.leaked[node] {
		return
	}
	p.leaked[node] = is
	if is != "" {
		p.change(nil, name, is, "")
	}
}

// waits prints that a node which has not begun, or goes on, waits for something
// it did not wait for before.
func (p *Plain) waits(node string, s run.Status, w *run.WaitingFor) {
	w = p.lasting(w)
	old, is := p.seen[node], waitingKey(w)
	if old.waiting == is || s.Terminal() {
		return
	}
	p.seen[node] = seen{status: s, waiting: is}
	if is != "" {
		p.change(nil, Clean(node), waitingWords(w, p.now()), "")
	}
}

func (p *Plain) change(at *time.Time, node, what, said string) {
	when := p.now()
	if at != nil {
		when = *at
	}
	if said != "" {
		said = " (" + said + ")"
	}
	p.printf("%s %s %s%s", when.Local().Format(time.TimeOnly), node, what, said)
}

func (p *Plain) printf(format string, args ...any) {
	if p.err != nil {
		return
	}
	if _, err := fmt.Fprintf(p.w, format+"\n", args...); err != nil {
		p.err = fmt.Errorf("writing the progress of the run: %w", err)
	}
}

// settled is how long a wait lasts before it is worth a line.
const settled = 2 * time.Second

// lasting is a wait that is worth a line, nil where it is not.
func (p *Plain) lasting(w *run.WaitingFor) *run.WaitingFor {
	if w == nil || w.Since != nil && p.now().Sub(*w.Since) < settled {
		return nil
	}
	return w
}

// waitingKey tells two waits apart, without what changes while one goes on. A
// reason is told when it is there: the next may only name another file.
func waitingKey(w *run.WaitingFor) string {
	if w == nil {
		return ""
	}
	return strings.Join([]string{w.Kind, w.Name, w.Holder, strconv.FormatBool(w.Reason != "")}, "\x00")
}

// began is when a node that runs began; of another change only the poll knows.
func began(s run.Status, start *time.Time) *time.Time {
	if s != run.Running {
		return nil
	}
	return start
}

func took(start, end *time.Time) string {
	if start == nil || end == nil {
		return ""
	}
	return Duration(end.Sub(*start))
}
