package devcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"belay.run/internal/config"
)

// errSignal ends a boot, a wait or a drain.
var errSignal = errors.New("asked to stop by a signal")

// up boots everything and stays until a signal comes: the first lets stages end
// that are under way, the second stops all at once.
func up(ctx context.Context, f *flags, out, errOut io.Writer) error {
	began := time.Now()
	ctx, stop := context.WithCancelCause(ctx)
	hurry, now := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer now(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		for _, act := range []context.CancelCauseFunc{stop, now} {
			select {
			case <-signals:
				act(errSignal)
			case <-hurry.Done():
				return
			}
		}
	}()

	b, err := f.start(ctx, false, console{errOut})
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errSignal):
		return nil
	case err != nil:
		return err
	}
	b.describe(out, f, time.Since(began))
	var fatal error
	select {
	case <-ctx.Done():
		b.drain(hurry, errOut)
	case fatal = <-b.Temporal.Fatal():
		fatal = fmt.Errorf("running Temporal: %w", fatal)
	}
	return errors.Join(fatal, b.stop(ctx))
}

// drain waits for stages that are under way.
func (b *boot) drain(hurry context.Context, errOut io.Writer) {
	if n := b.Stages(); n > 0 {
		say(errOut, "waiting for %d running stages to end; Ctrl-C again stops them\n", n)
	}
	if err := b.Drain(hurry); err != nil && hurry.Err() == nil {
		say(errOut, "dev: %v\n", err)
	}
}

// describe says what is where.
func (b *boot) describe(out io.Writer, f *flags, took time.Duration) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "Belay is ready (%.1f s)\n\n", took.Seconds())
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	row := func(name, place, note string) {
		if note != "" {
			note = "  (" + note + ")"
		}
		say(table, "  %s\t%s%s\n", name, place, note)
	}
	row("Temporal", b.Temporal.Address(), "")
	if b.UI != nil {
		row("UI", b.UI.URL, "")
	}
	row("Redis", config.RedactURL(b.Redis.URL), b.Redis.Note)
	row("Worker", b.http+"/readyz", "")
	row("Store", b.Settings.Store, "")
	if f.data == "" {
		row("State", "memory", "--data DIR keeps it")
	} else {
		row("State", b.Dir, "")
	}
	row("Log", b.log.path, "")
	_ = table.Flush() // into memory
	fmt.Fprintf(&text, "\nRun a pipeline from another terminal:\n\n  %sgo run ./starter run examples/hello.yaml\n\nCtrl-C ends.\n", b.variables(f))
	say(out, "%s", text.String())
}

// variables are those that a starter beside this dev needs, where its defaults
// do not find it.
func (b *boot) variables(f *flags) string {
	var v strings.Builder
	set := func(name, value string) { fmt.Fprintf(&v, "%s=%s ", name, value) }
	if f.port != temporalPort {
		set("TEMPORAL_ADDRESS", b.Temporal.Address())
	}
	if b.UI != nil && f.uiPort != uiPort {
		set("TEMPORAL_UI_URL", b.UI.URL)
	}
	set("REDIS_URL", config.RedactURL(b.Redis.URL))
	if _, given := environment()("BELAY_STORE"); !given && f.data != "" {
		set("BELAY_STORE", filepath.ToSlash(b.Settings.Store))
	}
	return v.String()
}
