package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"belay.run/internal/logs"
	"belay.run/internal/run"
	"belay.run/starter/runs"
)

const (
	// askPatience bounds a request to cancel.
	askPatience = 10 * time.Second
	// lastLogs bounds the wait for what steps printed last, after the run has
	// ended.
	lastLogs = 10 * time.Second
)

// errDetached ends following a run that goes on.
var errDetached = errors.New("detached")

// following is a run that is shown until it ends.
type following struct {
	runs *runs.Client
	ref  runs.Ref
	out  display
	// logs opens the logs; nil shows none.
	logs func(ctx context.Context) (*logs.Logs, error)
	sigs <-chan os.Signal
	keys interrupts
	// sender is who asks the run to cancel.
	sender string
}

// follow shows the run until it has ended, or until signals say to leave it
// before, which is errDetached. The document is the last state seen.
func (f *following) follow(ctx context.Context) (*run.Document, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	var tasks sync.WaitGroup
	var reading sync.Once
	tasks.Go(func() { f.heed(ctx, cancel) })
	logsRead := make(chan struct{})
	doc, err := f.runs.Follow(ctx, f.ref, func(snap *runs.Snapshot) error {
		if f.logs != nil {
			reading.Do(func() {
				tasks.Go(func() {
					defer close(logsRead)
					f.readLogs(ctx, snap.Document.RunKey, over)
				})
			})
		}
		return f.out.show(snap)
	})
	close(over)
	reading.Do(func() { close(logsRead) })
	if err == nil {
		select {
		case <-logsRead:
		case <-ctx.Done():
		case <-time.After(lastLogs):
		}
	}
	cancel(nil)
	tasks.Wait()
	return doc, errors.Join(err, f.out.finish(doc))
}

// readLogs passes on what steps print, until the run is over and all is read.
func (f *following) readLogs(ctx context.Context, runKey string, over <-chan struct{}) {
	err := func() error {
		l, err := f.logs(ctx)
		if err != nil {
			return err
		}
		return l.Follow(ctx, runKey, logs.Filter{}, over, f.out.log)
	}()
	if err != nil && ctx.Err() == nil {
		f.out.notice(fmt.Sprintf("no logs: %v", err))
	}
}

// heed does what signals ask for. Asking may take its time: the next signal does
// not wait for it.
func (f *following) heed(ctx context.Context, cancel context.CancelCauseFunc) {
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-f.sigs:
			switch f.keys.next(sig) {
			case nothing:
			case detach:
				f.delivered(ctx, &asking)
				cancel(errDetached)
			case askCancel:
				f.out.notice(f.keys.afterCancel())
				asking.Go(func() { f.ask(ctx, f.runs.Cancel, sig) })
			case askNow:
				f.out.notice("leaving out finally; Ctrl-C again ends everything at once")
				asking.Go(func() { f.ask(ctx, f.runs.CancelNow, sig) })
			}
		}
	}
}

// delivered waits until what was asked for has reached Temporal: who leaves a
// run has it cancelled all the same. One more signal does not wait.
func (f *following) delivered(ctx context.Context, asking *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		asking.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	case <-f.sigs:
	}
}

// ask asks the run for something because of a signal, and says so if that did
// not work.
func (f *following) ask(ctx context.Context, what func(context.Context, runs.Ref, runs.Asker) error, sig os.Signal) {
	ctx, stop := context.WithTimeout(ctx, askPatience)
	defer stop()
	if err := what(ctx, f.ref, runs.Asker{Identity: f.sender, Reason: signalName(sig)}); err != nil {
		f.out.notice(err.Error())
	}
}
