package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"belay.run/internal/logs"
	"belay.run/internal/run"
	"belay.run/starter/runs"
)

// logsFlags are those of `logs`.
type logsFlags struct {
	follow     bool
	attempt    int
	timestamps bool
	output     *format
}

func logsCommand(a *app) *cobra.Command {
	var f logsFlags
	cmd := &cobra.Command{
		Use:   "logs RUN [NODE]",
		Short: "Print what the steps of a run printed",
		Long: "Prints the logs of a run in the order of time, each line under the name of its\n" +
			"step. Of one step (NODE is a path such as build/compile) the bytes are printed\n" +
			"as they came; a stage as NODE selects its steps.",
		Args: args(cobra.RangeArgs(1, 2)),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on until the run has ended")
	flags.IntVar(&f.attempt, "attempt", 0, "only this attempt of each step (default all)")
	flags.BoolVar(&f.timestamps, "timestamps", false, "begin each line with its time")
	f.output = outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if flags.Changed("attempt") && f.attempt < 1 {
			return usage("--attempt %d: attempts count from 1", f.attempt)
		}
		node := ""
		if len(argv) == 2 {
			node = argv[1]
		}
		return a.onRun(cmd.Context(), argv[0], func(ctx context.Context, t *target) error {
			return t.logs(ctx, node, &f)
		})
	}
	return cmd
}

func (t *target) logs(ctx context.Context, node string, f *logsFlags) error {
	d, err := t.runs.Outline(ctx, t.ref)
	if err != nil {
		return err
	}
	l, err := t.conn.Logs(ctx)
	if err != nil {
		return err
	}
	if err := t.checkNode(ctx, l, d.RunKey, node); err != nil {
		return err
	}
	out := t.logWriter(node, f)
	filter := logs.Filter{Node: node, Attempt: f.attempt}
	some := false
	write := func(r logs.Record) error {
		some = true
		return out.Write(r)
	}
	if f.follow {
		err = l.Follow(ctx, d.RunKey, filter, t.runs.Closed(ctx, t.ref), write)
	} else {
		err = l.Replay(ctx, d.RunKey, filter, write)
	}
	if err != nil {
		return fmt.Errorf("reading the logs of %s: %w", t.ref.ID, err)
	}
	if err := out.Flush(); err != nil || some {
		return err
	}
	return t.explainSilence(ctx, l, d.RunKey, filter)
}

// explainSilence is the error where there is no such attempt, or where steps of a
// run have begun and the store has no log of any: it is another store than that of
// the worker, or lacks what it had.
func (t *target) explainSilence(ctx context.Context, l *logs.Logs, runKey string, f logs.Filter) error {
	sources, err := l.Sources(ctx, runKey, logs.Filter{})
	if err != nil {
		return fmt.Errorf("looking for the logs of %s: %w", t.ref.ID, err)
	}
	if len(sources) > 0 {
		return t.hasAttempt(ctx, sources, f)
	}
	snap, err := t.runs.Reader(t.ref).Read(ctx)
	if err != nil || !anyBegun(snap.Document) {
		return err
	}
	st, err := t.conn.Store(ctx)
	if err != nil {
		return err
	}
	return &ExitError{
		Code: ExitFailed, Err: fmt.Errorf("the store %s has no logs of run %s", st, t.ref.ID),
		Hint: "is BELAY_STORE the same as the worker's?",
	}
}

// hasAttempt refuses an attempt that no step had which was asked for. Attempts that
// printed nothing are known to the run alone.
func (t *target) hasAttempt(ctx context.Context, sources []logs.Source, f logs.Filter) error {
	if f.Attempt == 0 {
		return nil
	}
	asked := func(node string) bool {
		return f.Node == "" || node == f.Node || strings.HasPrefix(node, f.Node+"/")
	}
	last := 0
	for i := range sources {
		if asked(sources[i].Node) {
			last = max(last, sources[i].Attempt)
		}
	}
	snap, err := t.runs.Reader(t.ref).Read(ctx)
	if err != nil {
		return err
	}
	for i := range snap.Document.Stages {
		for j := range snap.Document.Stages[i].Steps {
			if s := &snap.Document.Stages[i].Steps[j]; asked(s.Node) {
				last = max(last, s.Attempts)
			}
		}
	}
	if f.Attempt <= last || last == 0 {
		return nil
	}
	return usage("--attempt %d: the last of %s is %d", f.Attempt, cmp.Or(f.Node, "run "+t.ref.ID), last)
}

// anyBegun reports whether a step of the run has begun a process: light steps
// have no log.
func anyBegun(d *run.Document) bool {
	for i := range d.Stages {
		for j := range d.Stages[i].Steps {
			p := &d.Stages[i].Steps[j]
			runs := d.Stages[i].Host != "" && p.Status == run.Running && p.Attempts > 0 && p.WaitingFor == nil
			if runs || p.ExitCode != nil || p.MaxRSS > 0 {
				return true
			}
		}
	}
	return false
}

// checkNode refuses a node that the run does not have. The run is asked only
// where there is no log that answers it.
func (t *target) checkNode(ctx context.Context, l *logs.Logs, runKey, node string) error {
	if node == "" {
		return nil
	}
	sources, err := l.Sources(ctx, runKey, logs.Filter{Node: node})
	if err != nil {
		return fmt.Errorf("looking for the logs of %s: %w", t.ref.ID, err)
	}
	if len(sources) > 0 {
		return nil
	}
	snap, err := t.runs.Reader(t.ref).Read(ctx)
	if err != nil {
		return err
	}
	return hasNode(snap, node)
}

// hasNode refuses a node that is not in a document, as far as that is known.
func hasNode(snap *runs.Snapshot, node string) error {
	if snap.NoAnswer != "" {
		return nil
	}
	var known []string
	for i := range snap.Document.Stages {
		s := &snap.Document.Stages[i]
		if s.Node == node || s.Name == node {
			return nil
		}
		known = append(known, s.Node)
		if !strings.HasPrefix(node, s.Node+"/") {
			continue
		}
		steps := make([]string, 0, len(s.Steps))
		for j := range s.Steps {
			if s.Steps[j].Node == node {
				return nil
			}
			steps = append(steps, s.Steps[j].Node)
		}
		known = steps
		if len(steps) == 0 {
			return nil // the stage has not said which steps it has
		}
		break
	}
	return &ExitError{
		Code: ExitUsage, Err: fmt.Errorf("run %s has no node %q", snap.Document.ID, node),
		Hint: "there are: " + strings.Join(firstFew(known), ", "),
	}
}

// recordWriter takes records one after the other.
type recordWriter interface {
	Write(r logs.Record) error
	Flush() error
}

// logWriter is how the flags want records written.
func (t *target) logWriter(node string, f *logsFlags) recordWriter {
	if *f.output == formatJSON {
		return newJSONLogs(t.Out, f.follow)
	}
	// A step's path has a slash; a stage's has none.
	var w recordWriter = logs.NewLines(t.Out, logs.LineOptions{
		Nodes: !strings.Contains(node, "/"), Safe: terminalOf(t.Out) != nil,
	})
	if f.timestamps {
		w = &stamped{recordWriter: w, inLine: map[source]bool{}}
	}
	return w
}

// source is what a line comes from: pieces of others may come between its own.
type source struct {
	node    string
	attempt int
	stream  logs.Stream
}

func sourceOf(r logs.Record) source { return source{r.Node, r.Attempt, r.Stream} }

// stamped puts the time before each line.
type stamped struct {
	recordWriter

	inLine map[source]bool
}

// Write passes the record on with times in it.
func (s *stamped) Write(r logs.Record) error {
	var b bytes.Buffer
	stamp := r.Time.UTC().Format("2006-01-02T15:04:05.000Z ")
	for line := range bytes.Lines(r.Data) {
		if !s.inLine[sourceOf(r)] {
			b.WriteString(stamp)
		}
		b.Write(line)
		s.inLine[sourceOf(r)] = line[len(line)-1] != '\n'
	}
	r.Data = b.Bytes()
	return s.recordWriter.Write(r)
}
