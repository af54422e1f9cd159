package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"

	"belay.run/internal/run"
)

// How often a run is looked at: often while something changes, ever more seldom
// while nothing does, and never so often that looking is most of the work.
const (
	fastest    = 300 * time.Millisecond
	slowest    = 2 * time.Second
	slowdown   = 1.3
	loadShare  = 4 // waits at least this many times what a look took
	outageMost = 2 * time.Minute
	// unwindMost is how long the stages of a run that was terminated are
	// waited for.
	unwindMost = 2 * time.Minute
)

// Follow calls show with each state of the run that differs from the one
// before, until the run has ended, and returns its last state. Short outages of
// Temporal are waited out: show is told of them with the last state and why.
// An error of show ends it.
func (c *Client) Follow(ctx context.Context, ref Ref, show func(*Snapshot) error) (*run.Document, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	closed := c.Closed(ctx, ref)
	r := c.Reader(ref)
	f := follower{show: show, wait: fastest, answered: time.Now()}
	for {
		began := time.Now()
		snap, err := r.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return f.document(), context.Cause(ctx)
		case err != nil:
			err = f.outage(err)
		default:
			err = f.news(snap)
		}
		if err != nil || f.over() {
			return f.document(), err
		}
		select {
		case <-ctx.Done():
			return f.document(), context.Cause(ctx)
		case <-closed:
			closed = nil // once; should it have been wrong, polling goes on
		case <-time.After(max(f.wait, loadShare*time.Since(began))):
		}
	}
}

// Closed is closed when the server says that the run has ended, or ctx does, so
// that nobody waits for the next look to learn it.
func (c *Client) Closed(ctx context.Context, ref Ref) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			err := c.temporal.GetWorkflow(ctx, ref.ID, ref.RunID).Get(ctx, nil)
			var ended *temporal.WorkflowExecutionError
			if err == nil || errors.As(err, &ended) || isNotFound(err) {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(slowest):
			}
		}
	}()
	return done
}

// follower is what Follow knows between two looks.
type follower struct {
	show     func(*Snapshot) error
	last     *Snapshot
	text     []byte
	wait     time.Duration
	answered time.Time
	closed   time.Time // when the run was first seen to have ended
}

// over reports whether there is nothing more to wait for.
func (f *follower) over() bool {
	if f.last == nil || !f.last.Closed {
		return false
	}
	if f.closed.IsZero() {
		f.closed = time.Now()
	}
	return f.last.Settled || time.Since(f.closed) > unwindMost
}

func (f *follower) document() *run.Document {
	if f.last == nil {
		return nil
	}
	return f.last.Document
}

// news shows a snapshot that differs from the last.
func (f *follower) news(snap *Snapshot) error {
	f.answered = time.Now()
	text, err := json.Marshal(snap.Document)
	if err != nil {
		return fmt.Errorf("comparing two states of the run: %w", err)
	}
	same := f.last != nil && bytes.Equal(text, f.text) && (f.last.NoAnswer == "") == (snap.NoAnswer == "") &&
		f.last.Closed == snap.Closed
	f.last, f.text = snap, text
	if same {
		f.wait = min(time.Duration(float64(f.wait)*slowdown), slowest)
		return nil
	}
	f.wait = fastest
	return f.show(snap)
}

// outage waits while Temporal does not answer, up to a bound.
func (f *follower) outage(err error) error {
	if f.last == nil || isNotFound(err) {
		return err
	}
	if gone := time.Since(f.answered); gone > outageMost {
		return fmt.Errorf("no answer for %s: %w", gone.Round(time.Second), err)
	}
	f.wait = slowest
	last := *f.last
	last.NoAnswer = fmt.Sprintf("Temporal does not answer (%v), trying again", err)
	f.text = nil
	return f.show(&last)
}
