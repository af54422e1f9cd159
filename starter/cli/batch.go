package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"belay.run/internal/batch"
	"belay.run/internal/batch/control"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/store"
	"belay.run/internal/task/types"
	"belay.run/internal/tracing"
)

// batchFlags are those of `batch run`.
type batchFlags struct {
	named

	out         string
	concurrency int
	rate        float64
	chunk       int
	detach      bool
	notify      string
	secrets     []string
	output      *format
}

func batchCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "batch",
		Short: "Run light tasks in bulk",
		Args:  cobra.ArbitraryArgs,
		RunE:  helpOrUnknown,
	}
	cmd.AddCommand(batchRunCommand(a), batchStatusCommand(a), batchResultsCommand(a), batchCancelCommand(a), batchRemoveCommand(a))
	return cmd
}

func batchRunCommand(a *app) *cobra.Command {
	var f batchFlags
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run the light tasks of a file, one JSON object a line",
		Long: "Checks every line of FILE (- reads standard input), starts the tasks in bulk, and\n" +
			"follows them until all have ended. Nothing starts if a line is bad. The first\n" +
			"Ctrl-C asks the batch to cancel, the second leaves it to itself.",
		Example: "  " + a.Name + ` batch run tasks.jsonl --out results.jsonl --rate 500
  {"type": "http", "with": {"url": "https://example.com/health"}}
  {"id": "hook-7", "type": "http", "with": {"url": "https://example.com/hook", "method": "POST"}, "timeout": "2s"}`,
		Args: args(cobra.ExactArgs(1)),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "", "write the results to this `file`, a JSON object a line, in the order of FILE")
	flags.IntVar(&f.concurrency, "concurrency", 0, "how many tasks run at once (default as many as the workers allow)")
	flags.Float64Var(&f.rate, "rate", 0, "how many tasks begin in a second (default without a bound)")
	flags.IntVar(&f.chunk, "chunk", batch.ChunkDefault, "how many tasks are handed out together")
	flags.BoolVar(&f.detach, "detach", false, "start it and return at once")
	flags.StringVar(&f.notify, "notify", "", "tell this `URL`, or run this command on a worker, when it has ended")
	flags.StringArrayVar(&f.secrets, "notify-secret", nil, "the `name` of a secret for --notify: a URL's bearer token, or a command's variable")
	f.add(flags, "batch")
	f.output = outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, argv []string) error {
		if err := f.check(flags); err != nil {
			return err
		}
		return a.runBatch(cmd.Context(), argv[0], &f)
	}
	return cmd
}

// check refuses what no batch can be started with.
func (f *batchFlags) check(flags *pflag.FlagSet) error {
	if err := f.named.check(flags); err != nil {
		return err
	}
	switch {
	case f.concurrency < 0 || f.concurrency > batch.ConcurrencyMost:
		return usage("--concurrency %d: want 1 to %d", f.concurrency, batch.ConcurrencyMost)
	case f.rate != 0 && !(f.rate >= batch.RateLeast && f.rate <= batch.RateMost): // not a number is neither
		return usage("--rate %g: want %g to %.0f a second", f.rate, batch.RateLeast, batch.RateMost)
	case f.chunk < 1 || f.chunk > batch.ChunkMost:
		return usage("--chunk %d: want 1 to %d", f.chunk, batch.ChunkMost)
	case f.detach && f.out != "":
		err := usage("--out needs the batch to be followed: leave out --detach")
		err.Hint = "fetch the results of one that was left with: batch results ID --out FILE"
		return err
	}
	if f.out == "" {
		return nil
	}
	// Found now, and not when all has run.
	if info, err := os.Stat(filepath.Dir(f.out)); err != nil || !info.IsDir() {
		return usage("--out %s: there is no folder %s", f.out, filepath.Dir(f.out))
	}
	return nil
}

// told is who is told of the end; nil is nobody.
func (f *batchFlags) told() (*spec.Notify, error) {
	switch {
	case f.notify == "" && len(f.secrets) > 0:
		return nil, usage("--notify-secret is for --notify")
	case f.notify == "":
		return nil, nil //nolint:nilnil // nobody is an answer
	case !strings.HasPrefix(f.notify, "http://") && !strings.HasPrefix(f.notify, "https://"):
		return &spec.Notify{Command: f.notify, Secrets: f.secrets}, nil
	}
	u, err := url.Parse(f.notify)
	switch {
	case err != nil || u.Host == "":
		return nil, usage("--notify %q: want an address such as https://host/path, or a command", f.notify)
	case u.User != nil:
		return nil, usage("--notify: a password has no place in an address; send a secret along with --notify-secret NAME")
	case len(f.secrets) > 1:
		return nil, usage("--notify-secret: an address takes one")
	}
	n := &spec.Notify{Webhook: f.notify}
	if len(f.secrets) == 1 {
		n.Secret = f.secrets[0]
	}
	return n, nil
}

// runBatch is the whole of `batch run`.
func (a *app) runBatch(ctx context.Context, path string, f *batchFlags) (err error) {
	notify, err := f.told()
	if err != nil {
		return err
	}
	sigs, stop := a.signals()
	defer stop()
	early, release, cancel := until(ctx, sigs)
	defer cancel()
	defer release()
	in, closeFile, err := a.openTasks(path)
	if err != nil {
		return err
	}
	defer closeFile()
	conn, disconnect, err := a.connect(early)
	if err != nil {
		return interrupted(early, err)
	}
	defer disconnect()
	st, err := conn.Store(early)
	if err != nil {
		return err
	}
	b := &batchRun{app: a, conn: conn, store: st, flags: f, control: conn.batches(), sigs: sigs}
	input := batch.Input{
		Folder: batch.NewFolder(), ChunkSize: f.chunk, Concurrency: f.concurrency, Rate: f.rate,
		Tenant: f.tenant, Project: f.project, File: filepath.Base(path), Sender: whoami(), Notify: notify,
	}
	packed, err := batch.Pack(early, in, st, input.Folder, f.chunk, types.Builtin(types.Tools{}))
	if err != nil {
		return interrupted(early, badLines(path, err))
	}
	input.Total = packed.Total
	// From here on a signal means the batch, not the command.
	release()
	if early.Err() != nil {
		return errors.Join(context.Cause(early), batch.Remove(ctx, st, input.Folder))
	}
	ctx, end := a.trace(ctx, conn, "belay batch run", &tracing.Scope{Tenant: f.tenant, Project: f.project})
	defer func() { end(err) }()
	return b.begin(ctx, input)
}

// openTasks opens the file of tasks.
func (a *app) openTasks(path string) (io.Reader, func(), error) {
	if path == "-" {
		return a.In, func() {}, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, &ExitError{Code: ExitUsage, Err: fmt.Errorf("reading the tasks: %w", err)}
	}
	return file, func() { _ = file.Close() }, nil // it was only read
}

// badLines is the error of a file with bad lines, each told with its number.
func badLines(path string, err error) error {
	invalid, ok := errors.AsType[*batch.InvalidError](err)
	if !ok {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: nothing was started", counted(invalid.Count, "bad line"))
	for _, l := range invalid.Errors {
		fmt.Fprintf(&b, "\n%s:%d: %s", path, l.Line, l.Message)
	}
	if more := invalid.Count - len(invalid.Errors); more > 0 {
		fmt.Fprintf(&b, "\n… and %d more", more)
	}
	return &ExitError{Code: ExitUsage, Err: errors.New(b.String())}
}

// batches speaks of batches over the connection.
func (c *Connection) batches() *control.Client { return control.New(c.Temporal, c.Namespace, c.WebURL) }

// writeResults writes the results of a batch to a file, whole or not at all.
func writeResults(ctx context.Context, st store.Store, d *batch.Document, path string) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	defer func() {
		if err != nil {
			// Closed twice, or gone: what counts is the error that there is.
			_, _ = temp.Close(), os.Remove(temp.Name())
		}
	}()
	if err := batch.WriteResults(ctx, st, d, temp); err != nil {
		return err
	}
	const mode = 0o644 // as of any other file that a person writes
	if err := errors.Join(temp.Chmod(mode), temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

// batchID is the id of a batch as it is given: whole, or its name alone in the
// default tenant and project.
func batchID(arg string) string {
	if strings.Contains(arg, "/") {
		return arg
	}
	return run.BatchID(run.DefaultTenant, run.DefaultProject, arg)
}

// elapsed is how long a batch has run.
func elapsed(d *batch.Document, now time.Time) time.Duration {
	if d.StartedAt == nil {
		return 0
	}
	if d.EndedAt != nil {
		now = *d.EndedAt
	}
	return now.Sub(*d.StartedAt)
}
