package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/workspace"
)

const (
	// drainEvery is how often a drain looks what is left.
	drainEvery = 200 * time.Millisecond
	// closeWithin is how long a drain waits for a stage that has released its
	// workspace to end in Temporal too.
	closeWithin = 10 * time.Second
	// cancelWithin is how long a drain tries to cancel a stage that it cannot
	// reach, and endWithin how long it waits for one that was cancelled: longer
	// than finally steps and releases take, unless a file says so.
	cancelWithin = 2 * time.Minute
	endWithin    = time.Hour
	// sayEvery is how often a drain says what it waits for.
	sayEvery = 30 * time.Second
)

// Drain lets the worker take no more stages and requests and waits until those
// on this host have ended. Stages that have not after the drain timeout are
// cancelled, with their finally steps and releases still run here. It returns
// early, with an error, when ctx ends. Stop is to be called after it in any case.
func (w *Worker) Drain(ctx context.Context) error {
	w.state.set(StatusDraining)
	w.log.Info("draining", zap.Duration("drain_timeout", w.cfg.Settings.DrainTimeout))
	requests, cancel := context.WithTimeout(ctx, w.cfg.Settings.DrainTimeout)
	defer cancel()
	if w.api != nil {
		w.api.Refuse()
	}
	if err := w.drainStages(ctx); err != nil {
		return err
	}
	if w.api != nil {
		w.api.Wait(requests)
	}
	w.log.Info("drained")
	return nil
}

// drainStages is Drain for stages.
func (w *Worker) drainStages(ctx context.Context) error {
	w.queues.steps.stop()
	if w.stages == nil {
		return nil // it never came to take any
	}
	d := &drain{
		stages: w.stages, log: w.log, began: time.Now(), timeout: w.cfg.Settings.DrainTimeout,
		known: make(map[workspace.Binding]*drained),
	}
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		if left := d.pass(ctx); left == 0 {
			return nil
		}
		if err := d.overdue(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("draining: %d stages have not ended: %w", len(d.known), context.Cause(ctx))
		}
	}
}

// drain is the state of a drain.
type drain struct {
	stages  *stages
	log     *zap.Logger
	began   time.Time
	timeout time.Duration
	said    time.Time
	known   map[workspace.Binding]*drained
}

// drained is what a drain knows about one stage.
type drained struct {
	released  time.Time // when its workspace was seen gone
	asked     time.Time // when Temporal was last asked about it
	cancelled bool
	lastErr   string
}

// pass looks at every stage once and returns how many have not ended.
func (d *drain) pass(ctx context.Context) int {
	bindings, err := d.stages.host.Bindings()
	if err != nil {
		d.log.Warn("could not read all that is bound to this host", zap.Error(err))
	}
	bound := make(map[workspace.Binding]bool, len(bindings))
	for _, b := range bindings {
		bound[b] = true
		if d.known[b] == nil {
			d.known[b] = &drained{}
		}
	}
	for b, s := range d.known {
		switch {
		case !bound[b]:
			if d.closed(ctx, b, s) {
				delete(d.known, b)
			}
		case !s.cancelled && time.Since(d.began) >= d.timeout:
			d.cancel(ctx, b, s)
		}
	}
	d.say()
	return len(d.known)
}

// closed reports whether a stage that gave its workspace back has ended. Its
// last activity has, but this worker may have to take its last decision.
func (d *drain) closed(ctx context.Context, b workspace.Binding, s *drained) bool {
	if s.released.IsZero() {
		s.released = time.Now()
	}
	if time.Since(s.released) > closeWithin {
		return true
	}
	if time.Since(s.asked) < drainEvery {
		return false
	}
	s.asked = time.Now()
	ended, err := d.stages.ended(ctx, b)
	return err == nil && ended
}

func (d *drain) cancel(ctx context.Context, b workspace.Binding, s *drained) {
	if time.Since(s.asked) < time.Second {
		return
	}
	s.asked = time.Now()
	err := d.stages.cancel(ctx, b, fmt.Sprintf("worker %s stops and the stage did not end within %s", d.stages.by, d.timeout))
	if err != nil {
		if s.lastErr != err.Error() {
			d.log.Warn("could not cancel a stage", zap.String("run", b.RunKey), zap.String("node", b.Node), zap.Error(err))
		}
		s.lastErr = err.Error()
		return
	}
	s.cancelled = true
	d.log.Warn("cancelled a stage that did not end in time", zap.String("run", b.RunKey), zap.String("node", b.Node))
}

// errOverdue ends a drain that has waited for long enough.
var errOverdue = errors.New("waited for long enough")

func (d *drain) overdue() error {
	late := time.Since(d.began) - d.timeout
	for b, s := range d.known {
		if (late > cancelWithin && !s.cancelled && s.released.IsZero()) || late > endWithin {
			return fmt.Errorf("draining: %s of run %s has not ended: %w", b.Node, b.RunKey, errOverdue)
		}
	}
	return nil
}

// say logs now and then what is waited for.
func (d *drain) say() {
	if len(d.known) == 0 || time.Since(d.said) < sayEvery {
		return
	}
	d.said = time.Now()
	var nodes []string
	for b := range d.known {
		if len(nodes) < 10 {
			nodes = append(nodes, b.Node)
		}
	}
	d.log.Info("waiting for stages to end", zap.Int("stages", len(d.known)), zap.Strings("nodes", nodes))
}
