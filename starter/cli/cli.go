// Package cli is the command line of Belay: the commands of starter, and of
// `dev run`, which passes a connection of its own.
package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"belay.run/internal/telemetry"
)

// Options are what the commands need of the world around them.
type Options struct {
	// Name is how the program is called in help and hints. Defaults to the name
	// it was started by.
	Name string
	// Version is the release. Defaults to the version of the Go module.
	Version string
	// Connect opens Temporal and what belongs to it. It is called once, by
	// commands that need it, after everything that can be checked without it.
	// Defaults to Temporal's environment configuration.
	Connect func(ctx context.Context) (*Connection, error)
	// Embedded says that the servers live in this very process, so that nothing
	// of a run remains after the command: the second Ctrl-C is then `--now`
	// instead of detaching, and the third ends everything.
	Embedded bool
	// In, Out and Err default to the standard streams.
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// Getenv reads a variable of the environment. Defaults to [os.Getenv].
	Getenv func(name string) string
	// Signals replaces the signals of the process.
	Signals <-chan os.Signal
}

// app is what the commands share.
type app struct {
	Options
}

// Main runs the command line with the process's own streams and returns the
// exit code.
func Main(ctx context.Context, args ...string) int {
	// It is one for the whole process; by default it would write to the terminal
	// what the commands say in their own words.
	redis.SetLogger(telemetry.Redis(nil))
	return Execute(ctx, Options{}, args)
}

// Execute runs one command line and returns its exit code. The error, if any,
// has been shown.
func Execute(ctx context.Context, opts Options, args []string) int {
	opts = opts.withDefaults()
	root := New(opts) //nolint:contextcheck // the commands have it from cobra
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	exit := exitError(err)
	report(&opts, cmd.CommandPath(), exit, wantsJSON(args))
	return exit.Code
}

// New builds the commands.
func New(opts Options) *cobra.Command {
	a := &app{Options: opts.withDefaults()}
	root := &cobra.Command{
		Use:   a.Name,
		Short: "Run delivery pipelines on Temporal",
		Long: "Belay runs delivery pipelines on Temporal: every step once, and nothing left\n" +
			"behind when one is cancelled, times out or fails.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          helpOrUnknown,
	}
	root.SuggestionsMinimumDistance = 2
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &ExitError{Code: ExitUsage, Err: err, Hint: "see: " + cmd.CommandPath() + " --help"}
	})
	// The program alone does nothing but explain itself.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable .HasParent}}", 1))
	root.AddCommand(
		runCommand(a), validateCommand(a),
		statusCommand(a), watchCommand(a), listCommand(a), logsCommand(a),
		cancelCommand(a), resourcesCommand(a), janitorCommand(a), dedupCommand(a), batchCommand(a), taskCommand(a), doctorCommand(a), schemaCommand(a), versionCommand(a),
	)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args, c.RunE = cobra.ArbitraryArgs, helpOrUnknown
		}
	}
	return root
}

// helpOrUnknown is a command that only has others: help, unless a word was given
// that is none of them.
func helpOrUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	err := usage("unknown command %q", args[0])
	err.Hint = "see: " + cmd.CommandPath() + " --help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err.Hint = "did you mean " + near[0] + "?"
	}
	return err
}

// yamlFiles completes file names.
func yamlFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// noArgs, and args below, check the number of arguments with our exit code.
func noArgs(cmd *cobra.Command, given []string) error {
	return args(cobra.NoArgs)(cmd, given)
}

func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if err := check(cmd, given); err != nil {
			return &ExitError{Code: ExitUsage, Err: err, Hint: "usage: " + cmd.UseLine()}
		}
		return nil
	}
}

// withDefaults fills in what was left out.
func (o Options) withDefaults() Options {
	if o.Name == "" {
		o.Name = filepath.Base(os.Args[0])
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.In == nil {
		o.In = os.Stdin
	}
	if o.Out == nil {
		o.Out = os.Stdout
	}
	if o.Err == nil {
		o.Err = os.Stderr
	}
	return o
}
