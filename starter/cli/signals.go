package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// echo is how soon after a signal the same one is not meant as another: some
// programs signal a process and then its whole group.
const echo = 50 * time.Millisecond

// signals gives the signals that end a command, and what stops them coming.
func (a *app) signals() (<-chan os.Signal, func()) {
	if a.Signals != nil {
		return a.Signals, func() {}
	}
	raw, ch, done := make(chan os.Signal, 8), make(chan os.Signal, 8), make(chan struct{})
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) { // as under nohup
			signal.Notify(raw, sig)
		}
	}
	go func() {
		defer close(done)
		withoutEchoes(raw, ch, time.Now)
	}()
	return ch, func() {
		signal.Stop(raw)
		close(raw)
		<-done
	}
}

// withoutEchoes passes signals on until from is closed, save those that only
// repeat the one before. Those that nobody takes are dropped.
func withoutEchoes(from <-chan os.Signal, to chan<- os.Signal, now func() time.Time) {
	var last os.Signal
	var at time.Time
	for sig := range from {
		before := at
		if at = now(); sig == last && at.Sub(before) < echo {
			continue
		}
		last = sig
		select {
		case to <- sig:
		default:
		}
	}
}

// interruptible is a context that the first signal ends. Commands that change
// nothing use it for all they do.
func (a *app) interruptible(ctx context.Context) (context.Context, func()) {
	sigs, stop := a.signals()
	ctx, release, cancel := until(ctx, sigs)
	return ctx, func() {
		release()
		cancel()
		stop()
	}
}

// until is a context that the first of sigs ends. After release, which may be
// called again, no signal is taken any more; cancel ends the context.
func until(ctx context.Context, sigs <-chan os.Signal) (_ context.Context, release, cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	released, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-sigs:
			end(errInterrupted)
		case <-released:
		case <-ctx.Done():
		}
	}()
	release = sync.OnceFunc(func() {
		close(released)
		<-done
	})
	return ctx, release, func() { end(nil) }
}

// signalName is what people call a signal.
func signalName(sig os.Signal) string {
	switch sig {
	case syscall.SIGINT:
		return "Ctrl-C"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGHUP:
		return "SIGHUP"
	}
	return sig.String()
}

// action is what a signal makes of a run that is being followed.
type action int

const (
	nothing action = iota
	// askCancel asks the run to cancel and goes on showing it.
	askCancel
	// askNow asks it to leave out what finally steps have not run yet.
	askNow
	// detach leaves the run alone and ends the command.
	detach
)

// interrupts decides what each signal means, by what came before.
type interrupts struct {
	// own says that this command started the run.
	own bool
	// embedded says that the run cannot go on without this process.
	embedded bool
	asked    int
}

// next is what one more signal means.
func (i *interrupts) next(sig os.Signal) action {
	switch {
	case sig == syscall.SIGHUP && !i.embedded, !i.own:
		return detach
	case sig != syscall.SIGINT && i.asked > 0:
		// A SIGTERM is a first Ctrl-C, however often it comes.
		return nothing
	}
	i.asked++
	switch {
	case i.asked == 1:
		return askCancel
	case i.asked == 2 && i.embedded:
		return askNow
	}
	return detach
}

// afterCancel says what the keyboard does once the run was asked to cancel.
func (i *interrupts) afterCancel() string {
	if i.embedded {
		return "asked the run to cancel; Ctrl-C again leaves out finally"
	}
	return "asked the run to cancel; Ctrl-C again leaves it to end by itself"
}

// resumed tells that the process goes on after it was stopped by Ctrl-Z.
func resumed() (<-chan os.Signal, func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGCONT)
	return ch, func() { signal.Stop(ch) }
}
