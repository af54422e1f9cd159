package batch

import (
	"fmt"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// Counts say how tasks ended. Each counts once, save that Retried counts those
// among them that an earlier attempt may have begun.
type Counts struct {
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	// Duplicate counts tasks whose key had been done, or was under way.
	Duplicate int `json:"duplicate"`
	// Skipped counts tasks that were handed to an executor and given back before
	// they began, NotStarted those that had not even been handed out.
	Skipped    int `json:"skipped"`
	NotStarted int `json:"not_started"`
	Retried    int `json:"retried"`
}

// Sum is how many tasks are counted.
func (c *Counts) Sum() int { return c.Ended() + c.Skipped + c.NotStarted }

// Ended is how many of them have run, or needed not to.
func (c *Counts) Ended() int { return c.Succeeded + c.Failed + c.Duplicate }

// add adds other counts.
func (c *Counts) add(o *Counts) {
	c.Succeeded += o.Succeeded
	c.Failed += o.Failed
	c.Duplicate += o.Duplicate
	c.Skipped += o.Skipped
	c.NotStarted += o.NotStarted
	c.Retried += o.Retried
}

// Failure is a task that failed, as a sample of its like.
type Failure struct {
	// Line is its place in the file, from 1.
	Line    int         `json:"line"`
	ID      string      `json:"id"`
	Type    string      `json:"type"`
	Trigger run.Trigger `json:"trigger"`
	Message string      `json:"message"`
}

// Tally counts tasks and keeps samples of those that failed. Its zero value has
// counted nothing.
type Tally struct {
	Counts

	Failures []Failure `json:"failures,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
}

// Add counts a task by its result; line is its place in the file, from 1.
func (t *Tally) Add(line int, r *task.Result) {
	if r.Retried {
		t.Retried++
	}
	switch r.Status {
	case task.Succeeded:
		t.Succeeded++
	case task.Duplicate:
		t.Duplicate++
	case task.Skipped:
		t.Skipped++
	case task.Failed:
		t.fail(line, r)
	default:
		t.fail(line, r)
	}
}

func (t *Tally) fail(line int, r *task.Result) {
	t.Failed++
	f := Failure{Line: line, ID: r.ID, Type: r.Type}
	if r.Error != nil {
		f.Trigger, f.Message = r.Error.Trigger, shorten(r.Error.Message)
	}
	t.sample(&f)
}

func (t *Tally) sample(f *Failure) {
	if len(t.Failures) < maxSamples {
		t.Failures = append(t.Failures, *f)
	}
}

// Note keeps a warning.
func (t *Tally) Note(format string, args ...any) {
	if len(t.Notes) < maxSamples {
		t.Notes = append(t.Notes, fmt.Sprintf(format, args...))
	}
}

// Plus adds what another has counted.
func (t *Tally) Plus(o *Tally) {
	t.add(&o.Counts)
	for i := range o.Failures {
		t.sample(&o.Failures[i])
	}
	for _, n := range o.Notes {
		t.Note("%s", n)
	}
}

// shorten bounds a message that goes into histories by the dozen.
func shorten(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && s[cut]&0xC0 == 0x80 { // not amid a character
		cut--
	}
	return s[:cut] + "…"
}
