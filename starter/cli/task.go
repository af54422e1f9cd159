package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"belay.run/internal/batch"
	"belay.run/internal/run"
	"belay.run/internal/task"
	"belay.run/internal/task/types"
	"belay.run/internal/tracing"
)

const (
	// mostAttempts bounds --attempts, leastWait and mostWait bound --wait.
	mostAttempts = 100
	leastWait    = time.Second
	mostWait     = 24 * time.Hour
	waitUsual    = time.Minute
)

// taskHas is what a task may have, for people.
const taskHas = "a task has id, type, with, key, priority and timeout"

// taskFlags are those of `task run`.
type taskFlags struct {
	named

	typ      string
	with     []string
	key      string
	timeout  string
	attempts int
	wait     time.Duration
	output   *format
}

func taskCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "task",
		Short: "Run a light task by itself",
		Args:  cobra.ArbitraryArgs,
		RunE:  helpOrUnknown,
	}
	cmd.AddCommand(taskRunCommand(a))
	return cmd
}

func taskRunCommand(a *app) *cobra.Command {
	var f taskFlags
	cmd := &cobra.Command{
		Use:   "run [FILE]",
		Short: "Run one light task and show what it came to",
		Long: "Runs one light task on a worker and waits for it: that of FILE, a JSON object as a\n" +
			"line of a batch is (- reads standard input), or that of --type and --with. The\n" +
			"first Ctrl-C cancels the task and waits for its end, the second leaves it.",
		Example: "  " + a.Name + " task run --type http --with url=https://example.com/health\n" +
			`  echo '{"type": "health_check", "with": {"url": "tcp://db:5432"}}' | ` + a.Name + " task run -",
		Args: args(cobra.MaximumNArgs(1)),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.typ, "type", "", "the type of the task, such as http")
	flags.StringArrayVar(&f.with, "with", nil, "`name=value` of a parameter; lists and tables also as JSON")
	flags.StringVar(&f.key, "key", "", "the business key under which it is done once")
	flags.StringVar(&f.timeout, "timeout", "", "how long it may take from its start, at most 10m (default the worker's usual)")
	flags.IntVar(&f.attempts, "attempts", 1, "how often it is tried where trying again may help")
	flags.DurationVar(&f.wait, "wait", waitUsual, "how long to wait for a worker that takes it")
	f.add(flags, "task")
	f.output = outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if err := f.check(flags); err != nil {
			return err
		}
		t, err := f.task(a, argv)
		if err != nil {
			return err
		}
		return a.runTask(cmd.Context(), t, &f)
	}
	return cmd
}

// check refuses what no task can be started with.
func (f *taskFlags) check(flags *pflag.FlagSet) error {
	if err := f.named.check(flags); err != nil {
		return err
	}
	switch {
	case f.attempts < 1 || f.attempts > mostAttempts:
		return usage("--attempts %d: want 1 to %d", f.attempts, mostAttempts)
	case flags.Changed("key") && f.key == "":
		return usage("--key is empty: name the key, or leave out the flag")
	case f.wait < leastWait || f.wait > mostWait:
		return usage("--wait %s: want %s to %s", f.wait, leastWait, mostWait)
	}
	return nil
}

// task is the task that the command line names, checked as far as that needs no
// worker.
func (f *taskFlags) task(a *app, argv []string) (task.Task, error) {
	registry := types.Builtin(types.Tools{})
	var line batch.Line
	var err error
	switch {
	case len(argv) == 0 && f.typ == "":
		return task.Task{}, usage("name a FILE with the task, or its --type")
	case len(argv) == 1 && (f.typ != "" || len(f.with) > 0):
		return task.Task{}, usage("--type and --with are for a task without a FILE")
	case len(argv) == 1:
		err = a.readTask(argv[0], &line)
	default:
		line.Type = f.typ
		line.With, err = withOf(registry, f.typ, f.with)
	}
	if err != nil {
		return task.Task{}, err
	}
	if f.key != "" {
		line.Key = &f.key
	}
	if f.timeout != "" {
		line.Timeout = f.timeout
	}
	t, err := line.Task(f.requestID)
	if err == nil {
		_, err = registry.Prepare(t)
	}
	if err != nil {
		return t, usage("%w", err)
	}
	id := run.TaskID(f.tenant, f.project, f.requestID)
	t.Origin = task.Origin{Tenant: f.tenant, Project: f.project, Run: id, Node: t.ID, Sender: whoami()}
	return t, nil
}

// readTask reads the one task of a file.
func (a *app) readTask(path string, into *batch.Line) error {
	in, closeFile, err := a.openTasks(path)
	if err != nil {
		return err
	}
	defer closeFile()
	text, err := io.ReadAll(io.LimitReader(in, batch.MaxLine))
	switch {
	case err != nil:
		return usage("reading the task: %w", err)
	case len(text) == batch.MaxLine:
		return usage("%s: is longer than %d bytes", path, batch.MaxLine-1)
	}
	if err := batch.Decode(text, into, taskHas); err != nil {
		wrong := usage("%s: %w", path, err)
		wrong.Hint = "many tasks, one a line, are for: batch run FILE"
		return wrong
	}
	return nil
}

// withOf is what a task is given by name=value. What is wrong with the names and
// values is for the type to say.
func withOf(registry *task.Registry, typ string, pairs []string) (json.RawMessage, error) {
	kinds := map[string]task.ParamKind{}
	if t, ok := registry.Get(typ); ok {
		for _, p := range t.Params() {
			kinds[p.Name] = p.Kind
		}
	}
	given := make(map[string]any, len(pairs))
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usage("--with %s: want name=value", pair)
		}
		value, kind := valueOf(text, kinds[name]), kinds[name]
		switch before, twice := given[name]; {
		case !twice:
			given[name] = value
		case kind == task.Texts:
			list, isList := before.([]any)
			if !isList {
				list = []any{before}
			}
			given[name] = append(list, value)
		default:
			return nil, usage("--with %s: it is given twice", name)
		}
	}
	text, err := json.Marshal(given)
	if err != nil {
		return nil, fmt.Errorf("writing what the task is given: %w", err)
	}
	return text, nil
}

// valueOf is a value as it is given: text, or where the parameter is a list or a
// table also JSON of that.
func valueOf(text string, kind task.ParamKind) any {
	begins := map[task.ParamKind]string{task.Texts: "[", task.Table: "{"}[kind]
	if begins != "" && strings.HasPrefix(strings.TrimSpace(text), begins) && json.Valid([]byte(text)) {
		return json.RawMessage(bytes.Clone([]byte(text)))
	}
	return text
}

// runTask is the whole of `task run`, once it is known what is to run.
func (a *app) runTask(ctx context.Context, t task.Task, f *taskFlags) (err error) {
	sigs, stop := a.signals()
	defer stop()
	early, release, cancel := until(ctx, sigs)
	defer cancel()
	defer release()
	conn, disconnect, err := a.connect(early)
	if err != nil {
		return interrupted(early, err)
	}
	defer disconnect()
	// From here on a signal means the task, not the command.
	release()
	if early.Err() != nil {
		return context.Cause(early)
	}
	ctx, end := a.trace(ctx, conn, "belay task run", &tracing.Scope{Tenant: f.tenant, Project: f.project, Run: t.Origin.Run})
	defer func() { end(err) }()
	r := &taskRun{app: a, conn: conn, flags: f, task: t, sigs: sigs, id: t.Origin.Run}
	return r.run(ctx)
}
