package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/tracing"
	"belay.run/internal/tree"
	"belay.run/starter/runs"
	"belay.run/workflows"
)

// runFlags are those of `run`.
type runFlags struct {
	inputs     []string
	inputsFile string
	tenant     string
	project    string
	requestID  string
	sender     string
	key        string
	duplicate  policy
	rerun      bool
	detach     bool
	priority   int
	output     *format
}

func runCommand(a *app) *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Start a pipeline, follow it, and end with its exit code",
		Long: "Starts the pipeline that FILE describes (- reads standard input) and follows it\n" +
			"until it has ended. The first Ctrl-C asks the run to cancel and shows how it\n" +
			"unwinds, the second leaves it to itself.",
		Example: "  " + a.Name + " run release.yaml -i tag=v1.4.2 -i env=prod",
		Args:    args(cobra.ExactArgs(1)),
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.inputs, "input", "i", nil, "an input, as `name=value`; may be given more than once")
	flags.StringVar(&f.inputsFile, "inputs-file", "", "a YAML or JSON `file` with inputs; -i wins over it")
	flags.StringVar(&f.tenant, "tenant", run.DefaultTenant, "whose run it is")
	flags.StringVar(&f.project, "project", run.DefaultProject, "the project it belongs to")
	flags.StringVar(&f.requestID, "request-id", "", "names this request: delivered twice, it runs once (default a new UUID)")
	flags.StringVar(&f.sender, "sender", "", "who asks (default user@host)")
	flags.StringVar(&f.key, "dedup-key", "", "the `key` under which it runs once, in place of the file's")
	flags.Var(&f.duplicate, "on-duplicate", "what becomes of a duplicate, in place of what the file says")
	flags.BoolVar(&f.rerun, "rerun", false, "run even if one with this key has completed")
	flags.BoolVar(&f.detach, "detach", false, "start it and return at once")
	flags.IntVar(&f.priority, "priority", 0, "from 1, before all others that wait, to 5 (default 3)")
	cmd.ValidArgsFunction = yamlFiles
	f.output = outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if f.sender == "" {
			f.sender = whoami()
		}
		if flags.Changed("dedup-key") && f.key == "" {
			return usage("--dedup-key: the key is empty")
		}
		if flags.Changed("priority") && (f.priority < run.FirstPriority || f.priority > run.LastPriority) {
			return usage("--priority %d: want %d, before all others that wait, to %d", f.priority, run.FirstPriority, run.LastPriority)
		}
		return a.run(cmd.Context(), argv[0], &f, flags.Changed("request-id"))
	}
	return cmd
}

// run is the whole of `run`.
func (a *app) run(ctx context.Context, path string, f *runFlags, named bool) (err error) {
	sigs, stop := a.signals()
	defer stop()
	early, release, cancel := until(ctx, sigs)
	defer cancel()
	defer release()
	req, plan, err := a.prepare(path, f, named)
	if err != nil {
		return err
	}
	conn, disconnect, err := a.connect(early)
	if err != nil {
		return interrupted(early, err)
	}
	defer disconnect()
	req.openKeyed(early, conn)
	defer req.settleAudit(ctx, a.Err)
	if req.input.SourceRef, err = a.packSource(early, conn, path, plan); err != nil {
		return interrupted(early, err)
	}
	if early.Err() != nil {
		return context.Cause(early)
	}
	// From here on a signal means the run, not the command.
	release()
	ctx, end := a.trace(ctx, conn, "belay run", &tracing.Scope{Tenant: f.tenant, Project: f.project, Pipeline: req.pipeline})
	defer func() { end(err) }()
	begun, err := req.start(ctx, conn.runs(), conn.Temporal)
	if err != nil {
		return err
	}
	traceRun(ctx, &begun)
	s := started{app: a, conn: conn, runs: conn.runs(), begun: begun, json: *f.output == formatJSON}
	if s.rejected {
		return s.refused(req.refusal(&begun))
	}
	s.announce()
	if f.detach {
		return s.detached(ctx, req)
	}
	return s.follow(ctx, &following{
		runs: s.runs, ref: s.ref, out: newDisplay(s.progress(), maxAttempts(plan)), logs: conn.Logs, sigs: sigs,
		keys:   interrupts{own: !s.attached, embedded: a.Embedded},
		sender: f.sender,
	})
}

// prepare reads the file and checks everything that can be checked here, so
// that every mistake is shown without a server.
func (a *app) prepare(path string, f *runFlags, named bool) (*request, *spec.Plan, error) {
	text, err := a.readFile(path)
	if err != nil {
		return nil, nil, err
	}
	inputs, err := readInputs(f.inputsFile, f.inputs)
	if err != nil {
		return nil, nil, err
	}
	file, report := spec.Parse(path, text)
	if err := spec.Render(a.Err, "warning", report.Warnings, styleOf(a.Err).Colour); err != nil {
		return nil, nil, err
	}
	if err := report.Err(); err != nil {
		return nil, nil, invalidFile(err)
	}
	plan, err := file.Plan(inputs)
	if err != nil {
		return nil, nil, invalidFile(err)
	}
	req := &request{
		pipeline: plan.Name, inputs: plan.Inputs, legs: plan.Legs(), named: named, priority: f.priority,
		input: workflows.PipelineInput{
			File: string(text), Path: path, Inputs: inputs, Tenant: f.tenant, Project: f.project,
			Sender: f.sender, RequestID: f.requestID, RequestedAt: time.Now().UTC(),
			DedupKey: f.key, OnDuplicate: string(f.duplicate), Rerun: f.rerun,
		},
	}
	if err := req.check(); err != nil {
		return nil, nil, err
	}
	return req, plan, req.withKey(plan)
}

// maxAttempts is how often each step is tried, as the tree shows it.
func maxAttempts(plan *spec.Plan) map[string]int {
	most := map[string]int{}
	var add func(stage string, steps []spec.Step)
	add = func(stage string, steps []spec.Step) {
		for i := range steps {
			most[stage+"/"+steps[i].Name] = steps[i].Retry.MaxAttempts
			add(stage, steps[i].Parallel)
		}
	}
	for i := range plan.Stages {
		add(plan.Stages[i].Name, plan.Stages[i].Steps)
		add(plan.Stages[i].Name, plan.Stages[i].Rollback)
		add(plan.Stages[i].Name, plan.Stages[i].Finally)
	}
	add(run.FinallyStage, plan.Finally)
	return most
}

// started is a run that this command started, or attached to.
type started struct {
	*app
	begun

	conn *Connection
	runs *runs.Client
	json bool
}

// announce prints the run's id first of all, so that it can be found again.
func (s *started) announce() {
	w := s.progress()
	line := "run " + s.ref.ID
	switch {
	case s.own:
		line = "attached to run " + s.ref.ID + ", which this request started before"
	case s.attached:
		line = "attached to run " + s.ref.ID + ": this is a duplicate of it"
	}
	if url := s.runs.URL(s.ref); url != "" {
		line += " (" + url + ")"
	}
	lines := []string{line}
	for _, n := range s.notes() {
		lines = append(lines, "  note: "+n)
	}
	// Whether it can be written shows with what comes next.
	_, _ = fmt.Fprintln(w, strings.Join(lines, "\n"))
}

// detached is the end of --detach.
func (s *started) detached(ctx context.Context, req *request) error {
	if !s.json {
		_, err := fmt.Fprintf(s.Out, "look at it with: %s watch %s\n", s.Name, s.ref)
		return err
	}
	d := run.Document{
		ID: s.ref.ID, RunID: s.ref.RunID, URL: s.runs.URL(s.ref), Pipeline: req.pipeline,
		Tenant: req.input.Tenant, Project: req.input.Project, Inputs: req.inputs, Status: run.Running, RunKey: s.ref.RunID,
		Resources: []run.Resource{}, Stages: []run.Stage{},
	}
	if s.attached {
		snap, err := s.runs.Reader(s.ref).Read(ctx)
		if err != nil {
			return err
		}
		d = *snap.Document
		s.mark(&d)
	}
	return writeJSON(s.Out, &d)
}

// follow shows the run and ends with its exit code.
func (s *started) follow(ctx context.Context, f *following) error {
	d, err := f.follow(ctx)
	detached := errors.Is(err, errDetached)
	if err != nil && !detached {
		exit := leftBy(err, d)
		if d != nil {
			exit.Err, exit.Hint = err, s.lookAgain()
		}
		return exit
	}
	if d != nil && !detached {
		if d, err = s.original(ctx, d); err != nil {
			return err
		}
		if d.Rejected {
			return s.refused(d)
		}
	}
	if d != nil {
		s.mark(d)
		if err := s.conclude(d); err != nil {
			return err
		}
	}
	if detached {
		return &ExitError{Code: ExitCancelled, Err: s.left(d), Hint: s.lookAgain()}
	}
	return endedRun(d)
}

// leftBy is the error of a command that cannot go on following a run, as when
// nobody takes its output. The run itself has not failed.
func leftBy(err error, d *run.Document) *ExitError {
	exit := *exitError(err)
	if exit.Code == ExitFailed && (d == nil || !d.Status.Terminal()) {
		exit.Code = ExitCancelled
	}
	return &exit
}

// conclude prints what is said of a run in the end.
func (s *started) conclude(d *run.Document) error {
	if s.json {
		if err := writeJSON(s.Out, d); err != nil {
			return err
		}
	}
	w := s.progress()
	text := tree.Summary(d, time.Now(), styleOf(w)) + "\n"
	if node := culprit(d); node != "" && !s.Embedded {
		text += fmt.Sprintf("  its log: %s logs %s %s\n", s.Name, s.ref.ID, quoted(node))
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("writing the summary: %w", err)
	}
	return nil
}

// culprit is the step because of which the run ended badly, if it was one and has
// a log, as those with processes have.
func culprit(d *run.Document) string {
	if d.Cause == nil || d.Status == run.Cancelled {
		return ""
	}
	for i := range d.Stages {
		for j := range d.Stages[i].Steps {
			if step := &d.Stages[i].Steps[j]; step.Node == d.Cause.Source && step.GracePeriod != "" {
				return tree.Clean(step.Node)
			}
		}
	}
	return ""
}

// quoted is text as a shell takes it.
func quoted(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune(safeInShell, r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

const safeInShell = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+"

// left says how a run was left.
func (s *started) left(d *run.Document) error {
	switch {
	case s.json && d != nil:
		return nil // the document says it
	case s.Embedded:
		return errors.New("ended before the run did")
	}
	return errors.New("left the run before its end: it goes on")
}

// lookAgain is how to find the run later; nothing remains of an embedded one.
func (s *started) lookAgain() string {
	if s.Embedded {
		return ""
	}
	return fmt.Sprintf("look at it again with: %s watch %s", s.Name, s.ref)
}

// progress is where people see what goes on: JSON has standard output for
// itself.
func (s *started) progress() io.Writer {
	if s.json {
		return s.Err
	}
	return s.Out
}
