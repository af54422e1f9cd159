package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"belay.run/internal/run"
	"belay.run/internal/tree"
	"belay.run/starter/runs"
)

// cancelFlags are those of `cancel`.
type cancelFlags struct {
	node   string
	now    bool
	reason string
	wait   bool
	output *format
}

// cancelDoc is what cancel prints under -o json when it does not wait.
type cancelDoc struct {
	ID        string `json:"id"`
	RunID     string `json:"run_id"`
	Node      string `json:"node"`
	Requested bool   `json:"requested"`
	Now       bool   `json:"now"`
}

func cancelCommand(a *app) *cobra.Command {
	var f cancelFlags
	cmd := &cobra.Command{
		Use:   "cancel RUN",
		Short: "Ask a run, a stage or a step to cancel",
		Long: "Asks a run to cancel and returns once the request is recorded; the run then ends\n" +
			"its processes and runs its finally steps. With --wait it returns when all that\n" +
			"is confirmed.",
		Args: args(cobra.ExactArgs(1)),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.node, "node", "", "cancel this stage or step only, by its `path`: build, build/compile")
	flags.BoolVar(&f.now, "now", false, "leave out finally steps that have not run yet, and end those that run")
	flags.StringVar(&f.reason, "reason", "", "why; the run keeps it as its cause")
	flags.BoolVar(&f.wait, "wait", false, "return when the end is confirmed")
	f.output = outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		switch asked := flags.Changed("node"); {
		case asked && f.node == "": // as from a variable that is not set
			return usage("--node is empty: name a stage or step, or leave out --node to cancel the whole run")
		case asked && f.now:
			return usage("--now is for whole runs: leave out --node")
		}
		return a.onRun(cmd.Context(), argv[0], func(ctx context.Context, t *target) error {
			return t.cancel(ctx, &f)
		})
	}
	return cmd
}

func (t *target) cancel(ctx context.Context, f *cancelFlags) error {
	d, err := t.runs.Outline(ctx, t.ref)
	if err != nil {
		return err
	}
	if d.Status.Terminal() {
		return t.tooLate(ctx, f)
	}
	if err := t.ask(ctx, f); errors.Is(err, errCancelledNode) {
		return t.alreadyCancelled(f)
	} else if err != nil {
		return err
	}
	what := "run " + t.ref.ID
	if f.node != "" {
		what = f.node + " of " + what
	}
	t.say(f, "asked %s to cancel", what)
	if !f.wait {
		if *f.output == formatJSON {
			return writeJSON(t.Out, cancelDoc{ID: t.ref.ID, RunID: t.ref.RunID, Node: f.node, Requested: true, Now: f.now})
		}
		return nil
	}
	return t.confirm(ctx, f, what)
}

// ask sends the request.
func (t *target) ask(ctx context.Context, f *cancelFlags) error {
	by := runs.Asker{Identity: whoami(), Reason: f.reason}
	if f.node == "" {
		if f.now {
			return t.runs.CancelNow(ctx, t.ref, by)
		}
		return t.runs.Cancel(ctx, t.ref, by)
	}
	snap, err := t.runs.Reader(t.ref).Read(ctx)
	if err != nil {
		return err
	}
	if nodeStatus(snap.Document, f.node) == run.Cancelled {
		return errCancelledNode
	}
	return nodeFault(t.runs.CancelNode(ctx, snap.Document, f.node, by))
}

// errCancelledNode says that there is nothing to ask for.
var errCancelledNode = errors.New("the node is already cancelled")

// alreadyCancelled says so; it is no error.
func (t *target) alreadyCancelled(f *cancelFlags) error {
	t.say(f, "%s of run %s is already cancelled", f.node, t.ref.ID)
	if *f.output == formatJSON {
		return writeJSON(t.Out, cancelDoc{ID: t.ref.ID, RunID: t.ref.RunID, Node: f.node})
	}
	return nil
}

// nodeFault is the error of a command that named a node of which there is nothing
// to cancel.
func nodeFault(err error) error {
	if node, ok := errors.AsType[*runs.NodeError](err); ok {
		exit := &ExitError{Code: ExitUsage, Err: err}
		if len(node.Known) > 0 {
			exit.Hint = "there are: " + strings.Join(firstFew(node.Known), ", ")
		}
		return exit
	}
	return err
}

// firstFew shortens a list that is for reading.
func firstFew(names []string) []string {
	const few = 12
	if len(names) <= few {
		return names
	}
	return append(names[:few:few], fmt.Sprintf("… and %d more", len(names)-few))
}

// tooLate is the cancel of a run that has ended: there is nothing to do where it
// was cancelled, and a mistake where it ended otherwise.
func (t *target) tooLate(ctx context.Context, f *cancelFlags) error {
	snap, err := t.runs.Reader(t.ref).Read(ctx)
	if err != nil {
		return err
	}
	d := snap.Document
	if d.Status != run.Cancelled {
		return &ExitError{Code: ExitUsage, Err: fmt.Errorf("run %s has already ended: %s", t.ref.ID, tree.StatusWords(d.Status))}
	}
	if f.node != "" && snap.Settled {
		if nodeStatus(d, f.node) == run.Cancelled {
			return t.alreadyCancelled(f)
		}
		// Nothing is asked for: no node of it is open.
		return nodeFault(t.runs.CancelNode(ctx, d, f.node, runs.Asker{Identity: whoami(), Reason: f.reason}))
	}
	t.say(f, "run %s is already cancelled", t.ref.ID)
	if f.wait && !snap.Settled {
		return t.confirm(ctx, f, "run "+t.ref.ID) // it was terminated, and its stages unwind
	}
	if *f.output == formatJSON {
		return writeJSON(t.Out, d)
	}
	return leaked(d)
}

// confirm waits until what was asked for has happened.
func (t *target) confirm(ctx context.Context, f *cancelFlags, what string) error {
	began := time.Now()
	done := errors.New("done")
	var last *run.Document
	_, err := t.runs.Follow(ctx, t.ref, func(snap *runs.Snapshot) error {
		last = snap.Document
		if f.node != "" && nodeEnded(last, f.node) {
			return done
		}
		return nil
	})
	if err != nil && !errors.Is(err, done) {
		return err
	}
	t.say(f, "%s has ended: %s, confirmed after %s", what, tree.StatusWords(nodeStatus(last, f.node)), tree.Duration(time.Since(began)))
	if *f.output == formatJSON {
		if err := writeJSON(t.Out, last); err != nil {
			return err
		}
	}
	return leaked(last)
}

// leaked is the error of a run that left something behind.
func leaked(d *run.Document) error {
	var names []string
	note := func(node string, resources []run.Resource) {
		for _, r := range resources {
			if r.State == run.ResourceLeaked {
				names = append(names, fmt.Sprintf("%s %s of %s", r.Kind, r.Name, node))
			}
		}
	}
	note("the pipeline", d.Resources)
	for i := range d.Stages {
		note(d.Stages[i].Node, d.Stages[i].Resources)
		for j := range d.Stages[i].Steps {
			note(d.Stages[i].Steps[j].Node, d.Stages[i].Steps[j].Resources)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &ExitError{Code: ExitFailed, Err: fmt.Errorf("not released: %s", strings.Join(firstFew(names), ", "))}
}

// nodeEnded reports whether a node, all legs of it, has ended.
func nodeEnded(d *run.Document, node string) bool {
	return nodeStatus(d, node).Terminal()
}

// nodeStatus is the state of a node of a run; of a stage with several legs, that
// of one which has not ended, if there is one.
func nodeStatus(d *run.Document, node string) run.Status {
	if node == "" {
		return d.Status
	}
	status := run.Pending
	for i := range d.Stages {
		s := &d.Stages[i]
		if s.Node == node || s.Name == node {
			status = s.Status
			if !status.Terminal() {
				return status
			}
		}
		for j := range s.Steps {
			if s.Steps[j].Node == node {
				return s.Steps[j].Status
			}
		}
	}
	return status
}

// say tells what happened, out of the way of JSON.
func (t *target) say(f *cancelFlags, format string, args ...any) {
	w := t.Out
	if *f.output == formatJSON {
		w = t.Err
	}
	// A closed output keeps nothing from happening.
	_, _ = fmt.Fprintf(w, format+"\n", args...)
}
