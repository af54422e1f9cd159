package cli

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"belay.run/internal/logs"
	"belay.run/internal/run"
	"belay.run/internal/tree"
	"belay.run/starter/runs"
)

// display shows a run to a person while it goes on. Its methods are safe for
// concurrent use.
type display interface {
	// show takes a state of the run that differs from the one before.
	show(snap *runs.Snapshot) error
	// log takes a piece of a step's log.
	log(r logs.Record) error
	// notice says something about the command itself.
	notice(text string)
	// finish shows the last state and ends the display. The document is nil
	// where none was ever seen.
	finish(d *run.Document) error
}

// newDisplay makes the display that w can show: a tree that is redrawn on a
// terminal, lines elsewhere.
func newDisplay(w io.Writer, maxAttempts map[string]int) display {
	if t := terminalOf(w); t.redraws() {
		return newLive(w, t, maxAttempts)
	}
	return newLines(w, maxAttempts)
}

// lines is the display for what is no terminal.
type lines struct {
	mu    sync.Mutex
	w     io.Writer
	plain *tree.Plain
	logs  *logs.Lines
	held  heldLogs
	last  *run.Document
	quiet bool // no worker answered last time
	stop  func()
}

// newsEvery is how often lines looks whether a wait has begun to last.
const newsEvery = time.Second

func newLines(w io.Writer, maxAttempts map[string]int) *lines {
	l := &lines{
		w: w, plain: tree.NewPlain(w, time.Now, maxAttempts),
		logs: logs.NewLines(w, logs.LineOptions{Nodes: true, Safe: true}),
	}
	l.stop = every(newsEvery, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.last != nil {
			// Both keep their errors for the next show.
			_ = l.plain.Update(l.last)
			_ = l.release(false)
		}
	})
	return l
}

func (l *lines) show(snap *runs.Snapshot) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if quiet := snap.NoAnswer != ""; quiet != l.quiet {
		l.quiet = quiet
		if quiet {
			l.say(noAnswer(snap))
		}
	}
	l.last = snap.Document
	return errors.Join(l.plain.Update(snap.Document), l.release(false))
}

func (l *lines) log(r logs.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held.empty() && l.plain.Shown(r.Node) {
		return l.logs.Write(r)
	}
	l.held.add(r)
	return l.release(false)
}

// release prints what was held back once there is no reason left to.
func (l *lines) release(all bool) error {
	if !all && !l.held.due(l.plain.Shown) {
		return nil
	}
	return l.held.drain(l.logs.Write)
}

func (l *lines) notice(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say(text)
}

func (l *lines) say(text string) {
	// The next state meets the same error and ends the command.
	_, _ = fmt.Fprintf(l.w, "%s %s\n", time.Now().Format(time.TimeOnly), tree.Clean(text))
}

func (l *lines) finish(*run.Document) error {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.release(true), l.logs.Flush())
}

// every does something again and again, until it is stopped.
func every(pause time.Duration, do func()) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				do()
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(done)
		<-ended
	})
}

// noAnswer says in words that the state shown may be old.
func noAnswer(snap *runs.Snapshot) string {
	return snap.NoAnswer + ": what is shown is what Temporal itself knows"
}

// tick is how often the live tree is redrawn: often enough for what moves in
// it, rarely enough to cost next to nothing.
const tick = 150 * time.Millisecond

// finalLines bounds the last drawing, which stays on the terminal. It may be
// longer than the terminal is high.
const finalLines = 200

// live is the tree on a terminal.
type live struct {
	term  *terminal
	tails *tree.Tails

	mu     sync.Mutex
	screen *tree.Screen
	view   tree.View
	hint   string // what the keyboard does now
	stale  string // why the state may be old
	ticks  int
	err    error

	stop func()
}

func newLive(w io.Writer, t *terminal, maxAttempts map[string]int) *live {
	l := &live{term: t, tails: tree.NewTails(), screen: tree.NewScreen(w)}
	l.view = tree.View{Tail: l.tails.Last, MaxAttempts: maxAttempts}
	resumed, ignore := resumed()
	stop := every(tick, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		select {
		case <-resumed:
			l.screen.Forget() // the shell has written below what was drawn
		default:
		}
		l.ticks++
		l.draw(0)
	})
	l.stop = func() {
		stop()
		ignore()
	}
	return l
}

// draw draws what is known now, in at most the given lines; 0 means the
// terminal's own height.
func (l *live) draw(height int) {
	if l.view.Run == nil || l.err != nil {
		return
	}
	width, high := l.term.size()
	if height == 0 {
		height = max(high-1, 0)
	}
	st := l.term.style
	st.Width, st.Height, st.Tick = width, height, l.ticks
	l.view.Now = time.Now()
	l.view.Notice = l.hint
	if l.stale != "" {
		l.view.Notice = l.stale
	}
	l.err = l.screen.Draw(l.view.Lines(st), width)
}

func (l *live) show(snap *runs.Snapshot) error {
	l.tails.Prune(snap.Document)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.Run, l.stale = snap.Document, ""
	if snap.NoAnswer != "" {
		l.stale = noAnswer(snap)
	}
	l.draw(0)
	return l.err
}

func (l *live) log(r logs.Record) error {
	if r.Stream != logs.System {
		l.tails.Write(r.Node, r.Attempt, r.Data)
	}
	return nil
}

func (l *live) notice(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hint = text
	l.draw(0)
}

func (l *live) finish(d *run.Document) error {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	if d != nil {
		l.view.Run = d
	}
	l.hint, l.stale = "", ""
	l.draw(finalLines)
	return l.err
}
