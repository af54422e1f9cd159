package logs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// pollEvery is how often the store is looked at where nobody says what is
	// new, and pollLive where Redis does.
	pollEvery = 200 * time.Millisecond
	pollLive  = time.Second
	// pollShare bounds the part of the time that looking takes: one in ten.
	pollShare = 10
	// roundTime is after how much delivering new logs are looked for.
	roundTime = 500 * time.Millisecond
	// followPatience is how long the store may fail before Follow does.
	followPatience = 30 * time.Second
)

// Follow is Replay that goes on with what is written meanwhile, as it comes:
// each record once, those of a node in order. It returns nil when done is
// closed, which says that the run is over, and all was delivered.
func (l *Logs) Follow(ctx context.Context, runKey string, f Filter, done <-chan struct{}, fn func(Record) error) error {
	w := &follower{logs: l, runKey: runKey, filter: f, fn: fn, cursors: map[string]*cursor{}}
	if l.rdb != nil {
		w.live = newListener(l, runKey)
	}
	for {
		over := false
		select {
		case <-done:
			over = true
		default:
		}
		caughtUp, err := w.round(ctx, over)
		switch {
		case err != nil:
			return unwrapStop(err)
		case over && caughtUp:
			return nil
		case !caughtUp:
			continue
		}
		if err := w.wait(ctx, done); err != nil {
			return err
		}
	}
}

// follower is one call of Follow.
type follower struct {
	logs    *Logs
	runKey  string
	filter  Filter
	fn      func(Record) error
	cursors map[string]*cursor // by the name of their part
	live    *listener
	// pollAt is when the store is looked at next, whatever Redis says.
	pollAt time.Time
	// failing is since when the store fails.
	failing time.Time
}

// round delivers what is new, and reports whether that was all there is. A
// store that fails for a while only delays it.
func (w *follower) round(ctx context.Context, over bool) (caughtUp bool, err error) {
	started := time.Now()
	if over || !started.Before(w.pollAt) {
		if err = w.look(ctx); err == nil {
			every := pollEvery
			if w.live != nil && w.live.hears() {
				every = pollLive
			}
			w.pollAt = time.Now().Add(max(every, pollShare*time.Since(started)))
		}
	}
	late := false
	if err == nil {
		open := make([]*cursor, 0, len(w.cursors))
		for _, c := range w.cursors {
			if !c.ended {
				open = append(open, c)
			}
		}
		err = merge(ctx, w.logs.store, open, w.fn, func() bool {
			late = !over && time.Since(started) > roundTime
			return late
		})
	}
	return err == nil && !late, w.bear(ctx, err)
}

// bear waits a little after an error of the store, which may be back then.
func (w *follower) bear(ctx context.Context, err error) error {
	_, stop := errors.AsType[stopError](err)
	switch {
	case err == nil:
		w.failing = time.Time{}
		return nil
	case ctx.Err() != nil, stop:
		return err
	case w.failing.IsZero():
		w.failing = time.Now()
	case time.Since(w.failing) > followPatience:
		return fmt.Errorf("following logs: %w", err)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollEvery):
		return nil
	}
}

// look finds the logs there are, and has all of them read from the store.
func (w *follower) look(ctx context.Context) error {
	parts, err := w.logs.parts(ctx, w.runKey, w.filter)
	if err != nil {
		return err
	}
	for _, p := range parts {
		w.add(p)
	}
	for _, c := range w.cursors {
		c.level = false
	}
	return nil
}

// add follows a part, unless it does already.
func (w *follower) add(p part) {
	if w.cursors[p.name()] == nil {
		w.cursors[p.name()] = &cursor{part: p, key: p.key(w.runKey)}
	}
}

// wait returns when there may be something new.
func (w *follower) wait(ctx context.Context, done <-chan struct{}) error {
	poll := time.NewTimer(time.Until(w.pollAt))
	defer poll.Stop()
	var heard <-chan news
	if w.live != nil {
		heard = w.live.listen(ctx, w.cursors)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-done:
	case <-poll.C:
	case n := <-heard:
		w.take(n)
	}
	return nil
}

// take feeds what Redis told to the cursors.
func (w *follower) take(n news) {
	w.live.heard(n)
	if n.located {
		// What came before is not told again: the store has it.
		w.pollAt = time.Now()
	}
	for _, name := range n.begun {
		if p, ok := parsePart(name); ok && w.filter.selects(p) {
			w.add(p)
		}
	}
	for name, chunks := range n.chunks {
		for _, k := range chunks {
			if c := w.cursors[name]; c != nil {
				c.feed(k)
			}
		}
	}
}
