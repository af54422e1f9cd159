package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"belay.run/internal/pause"
)

// againAfter is how long to wait before Temporal is asked again for an end.
const againAfter = time.Second

// errAsked is [errDetached] of what was asked to cancel before.
var errAsked = fmt.Errorf("asked to cancel, and %w", errDetached)

// attendance is what a command does beside its wait for the end of a batch or a
// task.
type attendance struct {
	// kind is what is waited for, for people.
	kind string
	// own says that this command started it.
	own  bool
	sigs <-chan os.Signal
	// say tells a person something; ask asks for a cancel because of a signal;
	// look shows how it goes until its context ends. They may run at once.
	say  func(text string)
	ask  func(ctx context.Context, sig os.Signal) error
	look func(ctx context.Context)
}

// attend waits for an end, also over a Temporal that is away for a while, or until
// signals say to leave what is waited for, which is errDetached.
func attend[T any](ctx context.Context, a attendance, end func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var beside sync.WaitGroup
	beside.Go(func() { a.heed(ctx, cancel) })
	beside.Go(func() { a.look(ctx) })
	v, err := insist(ctx, end)
	if why := context.Cause(ctx); err != nil && errors.Is(why, errDetached) {
		err = why
	}
	cancel(nil)
	beside.Wait()
	return v, err
}

// insist asks again as long as Temporal cannot be reached.
func insist[T any](ctx context.Context, end func(context.Context) (T, error)) (T, error) {
	for {
		v, err := end(ctx)
		if err == nil || ctx.Err() != nil || !isUnreachable(err) {
			return v, err
		}
		if err := pause.For(ctx, againAfter); err != nil {
			return v, err
		}
	}
}

// heed does what signals ask for.
func (a *attendance) heed(ctx context.Context, cancel context.CancelCauseFunc) {
	keys := interrupts{own: a.own}
	var asking sync.WaitGroup
	var asked atomic.Bool
	defer asking.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-a.sigs:
			switch keys.next(sig) {
			case nothing, askNow:
			case detach:
				asking.Wait() // who leaves it has it cancelled all the same
				if asked.Load() {
					cancel(errAsked)
				} else {
					cancel(errDetached)
				}
			case askCancel:
				a.say("asked the " + a.kind + " to cancel; Ctrl-C again leaves it to end by itself")
				asking.Go(func() { asked.Store(a.cancel(ctx, sig)) })
			}
		}
	}
}

// cancel asks for a cancel, and reports whether that was heard.
func (a *attendance) cancel(ctx context.Context, sig os.Signal) bool {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), askPatience)
	defer stop()
	err := a.ask(ctx, sig)
	if err != nil {
		a.say(err.Error())
	}
	return err == nil
}

// left is the error of a command that left what it attended to, which is of that
// kind, before its end.
func left(kind string, why error, hint string) *ExitError {
	goesOn := "it goes on"
	if errors.Is(why, errAsked) {
		goesOn = "it was asked to cancel, and ends by itself"
	}
	return &ExitError{Code: ExitCancelled, Err: fmt.Errorf("left the %s before its end: %s", kind, goesOn), Hint: hint}
}
