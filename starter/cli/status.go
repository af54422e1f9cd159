package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"belay.run/internal/logs"
	"belay.run/internal/run"
	"belay.run/internal/tree"
	"belay.run/starter/runs"
)

const (
	// tailPatience bounds the reading of log lines that only adorn a status.
	tailPatience = 3 * time.Second
	// maxTails is of how many steps the last lines are read for a status.
	maxTails = 20
	// tailBytes is how much of a log is read for its last lines.
	tailBytes = 8 << 10
)

func statusCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status RUN",
		Short: "Show how a run stands, or how it ended",
		Args:  args(cobra.ExactArgs(1)),
	}
	out := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		return a.onRun(cmd.Context(), argv[0], func(ctx context.Context, t *target) error {
			return t.status(ctx, *out)
		})
	}
	return cmd
}

// target is the run that a command is about.
type target struct {
	*app
	conn *Connection
	runs *runs.Client
	ref  runs.Ref
}

// onRun connects, finds the run that arg means, and does something with it.
func (a *app) onRun(ctx context.Context, arg string, do func(context.Context, *target) error) error {
	return a.connected(ctx, func(ctx context.Context, conn *Connection) error {
		t := &target{app: a, conn: conn, runs: conn.runs()}
		var err error
		if t.ref, err = t.runs.Resolve(ctx, arg); err != nil {
			return err
		}
		return do(ctx, t)
	})
}

// connected connects, does something, and closes the connection. The first
// signal ends it.
func (a *app) connected(ctx context.Context, do func(context.Context, *Connection) error) error {
	ctx, stop := a.interruptible(ctx)
	defer stop()
	conn, disconnect, err := a.connect(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer disconnect()
	return interrupted(ctx, do(ctx, conn))
}

// interrupted prefers the signal that ended ctx over what came of it.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (t *target) status(ctx context.Context, out format) error {
	snap, err := t.runs.Reader(t.ref).Read(ctx)
	if err != nil {
		return err
	}
	if snap.NoAnswer != "" {
		// Progress only: the document is what counts.
		_, _ = fmt.Fprintln(t.Err, noAnswer(snap))
	}
	if out == formatJSON {
		return writeJSON(t.Out, snap.Document)
	}
	return t.printStatus(&tree.View{
		Run: snap.Document, Now: time.Now(), Tail: t.readTails(ctx, snap.Document).Last, MaxAttempts: t.attempts(ctx),
	})
}

// printStatus prints the tree as it is now, whole.
func (t *target) printStatus(view *tree.View) error {
	st := styleOf(t.Out)
	if term := terminalOf(t.Out); term != nil {
		st.Width, _ = term.size()
	}
	var b strings.Builder
	fmt.Fprintln(&b, headline(view.Run))
	for _, l := range view.Lines(st) {
		fmt.Fprintln(&b, l)
	}
	if view.Run.Status.Terminal() {
		fmt.Fprintln(&b, tree.Summary(view.Run, view.Now, st))
	}
	if _, err := io.WriteString(t.Out, b.String()); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

func headline(d *run.Document) string {
	s := "run " + tree.Clean(d.ID)
	if d.URL != "" {
		s += " (" + d.URL + ")"
	}
	return s
}

// readTails reads the last lines of the steps that run or went wrong. They
// adorn the tree: where they cannot be read it stands without them.
func (t *target) readTails(ctx context.Context, d *run.Document) *tree.Tails {
	tails := tree.NewTails()
	ctx, cancel := context.WithTimeout(ctx, tailPatience)
	defer cancel()
	nodes := telling(d)
	if len(nodes) == 0 {
		return tails
	}
	err := func() error {
		l, err := t.conn.Logs(ctx)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			if err := addTail(ctx, l, d.RunKey, node, tails); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		_, _ = fmt.Fprintf(t.Err, "no logs: %v\n", err) // as above
	}
	return tails
}

func addTail(ctx context.Context, l *logs.Logs, runKey, node string, tails *tree.Tails) error {
	records, err := l.Last(ctx, runKey, node, tailBytes)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Stream != logs.System {
			tails.Write(r.Node, r.Attempt, r.Data)
		}
	}
	return nil
}

// telling are the steps whose last lines say something now.
func telling(d *run.Document) []string {
	var nodes []string
	for i := range d.Stages {
		for j := range d.Stages[i].Steps {
			switch p := &d.Stages[i].Steps[j]; p.Status {
			case run.Running, run.Cancelling, run.Failed, run.TimedOut:
				nodes = append(nodes, p.Node)
			case run.Pending, run.Succeeded, run.Cancelled, run.Skipped, run.Duplicate:
			}
			if len(nodes) == maxTails {
				return nodes
			}
		}
	}
	return nodes
}
