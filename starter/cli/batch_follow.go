package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"belay.run/internal/batch"
	"belay.run/internal/batch/control"
	"belay.run/internal/store"
)

// batchLook is how often the progress of a batch is looked at.
const batchLook = 500 * time.Millisecond

// batchRun is a batch that this command started, or found.
type batchRun struct {
	*app

	conn    *Connection
	store   store.Store
	flags   *batchFlags
	control *control.Client
	sigs    <-chan os.Signal
	id      string
	own     bool
}

// begin starts the batch and follows it.
func (b *batchRun) begin(ctx context.Context, in batch.Input) error {
	started, err := b.control.Start(ctx, in, b.flags.requestID)
	if err != nil || started.Attached {
		// Nobody will run what was packed.
		err = errors.Join(err, batch.Remove(context.WithoutCancel(ctx), b.store, in.Folder))
	}
	if err != nil {
		return err
	}
	b.id, b.own = started.ID, !started.Attached
	b.announce(&in, started)
	if b.flags.detach {
		return b.detached(ctx, &in, started)
	}
	d, err := b.follow(ctx)
	if errors.Is(err, errDetached) {
		return left("batch", err, b.lookAgain())
	}
	if err != nil {
		return &ExitError{Code: leftBy(err, nil).Code, Err: err, Hint: b.lookAgain()}
	}
	return b.conclude(ctx, d)
}

// announce prints the batch's id first of all, so that it can be found again.
func (b *batchRun) announce(in *batch.Input, started control.Started) {
	line := fmt.Sprintf("batch %s: %s", b.id, counted(in.Total, "task"))
	if started.Attached {
		line = "batch " + b.id + " was started before: following it"
	}
	if url := b.control.URL(b.id, started.RunID); url != "" {
		line += " (" + url + ")"
	}
	// Whether it can be written shows with what comes next.
	_, _ = fmt.Fprintln(b.progress(), line)
}

func (b *batchRun) detached(ctx context.Context, in *batch.Input, started control.Started) error {
	if *b.flags.output != formatJSON {
		_, err := fmt.Fprintln(b.Out, b.lookAgain())
		return err
	}
	d := in.Document(started.ID, started.RunID, time.Now().UTC())
	d.URL = b.control.URL(started.ID, started.RunID)
	if started.Attached {
		there, err := b.control.Read(ctx, started.ID)
		if err != nil {
			return err
		}
		d = *there
	}
	return writeJSON(b.Out, &d)
}

func (b *batchRun) lookAgain() string {
	return fmt.Sprintf("look at it with: %s batch status %s", b.Name, quoted(b.id))
}

// progress is where people see what goes on: JSON has standard output for
// itself.
func (b *batchRun) progress() io.Writer {
	if *b.flags.output == formatJSON {
		return b.Err
	}
	return b.Out
}

// follow shows the batch until it has ended, or until signals say to leave it
// before, which is errDetached.
func (b *batchRun) follow(ctx context.Context) (*batch.Document, error) {
	bar := newBatchBar(b.progress(), time.Now)
	defer bar.finish()
	return attend(ctx, attendance{
		kind: "batch", own: b.own, sigs: b.sigs, say: bar.notice, ask: b.ask,
		look: func(ctx context.Context) { b.look(ctx, bar) },
	}, func(ctx context.Context) (*batch.Document, error) { return b.control.Await(ctx, b.id) })
}

// look shows how far the batch is, now and then.
func (b *batchRun) look(ctx context.Context, bar *batchBar) {
	tick := time.NewTicker(batchLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// What cannot be read now is read the next time.
			if d, err := b.control.Read(ctx, b.id); err == nil && !d.Status.Terminal() {
				bar.show(d)
			}
		}
	}
}

func (b *batchRun) ask(ctx context.Context, sig os.Signal) error {
	return b.control.Cancel(ctx, b.id, whoami(), signalName(sig))
}

// conclude writes the results and what is said of a batch in the end.
func (b *batchRun) conclude(ctx context.Context, d *batch.Document) error {
	if err := control.Recount(ctx, b.store, d); err != nil {
		return err
	}
	if b.flags.out != "" {
		if err := writeResults(ctx, b.store, d, b.flags.out); err != nil {
			return &ExitError{Code: ExitFailed, Err: err, Hint: fmt.Sprintf("the batch has ended; try: %s batch results %s --out FILE", b.Name, quoted(d.ID))}
		}
	}
	if *b.flags.output == formatJSON {
		if err := writeJSON(b.Out, d); err != nil {
			return err
		}
	}
	text := batchSummary(d, time.Now())
	if b.flags.out != "" {
		text += "  results: " + b.flags.out + "\n"
	}
	if _, err := io.WriteString(b.progress(), text); err != nil {
		return fmt.Errorf("writing the summary: %w", err)
	}
	return ended(d.Status)
}
