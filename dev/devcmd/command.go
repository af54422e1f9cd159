// Package devcmd is the command line of dev: Belay with everything it needs in
// one process, for as long as one works with it or for a single run.
package devcmd

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/spf13/cobra"

	"belay.run/starter/cli"
)

// The ports of a dev that stays up: those that Temporal's and Belay's own
// programs look at when they are told nothing.
const (
	temporalPort = 7233
	uiPort       = 8233
	redisPort    = 6379
	httpPort     = 9464
)

// flags are those of dev.
type flags struct {
	data     string
	redisURL string
	ip       net.IP
	port     int
	uiPort   int
	redis    int
	http     int
	headless bool
}

// Main runs a command line and returns its exit code.
func Main(ctx context.Context, args []string, out, errOut io.Writer) int {
	code := cli.ExitOK
	root := command(&code) //nolint:contextcheck // cobra hands the context to each command
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	if err := root.ExecuteContext(ctx); err != nil {
		say(errOut, "dev: %v\n", err)
		if code == cli.ExitOK {
			code = cli.ExitFailed
		}
	}
	return code
}

// command builds the commands. Code is set to the exit code of a run, and to
// that of bad usage before an error about it.
func command(code *int) *cobra.Command {
	f := &flags{}
	bad := func(err error) error {
		*code = cli.ExitUsage
		return err
	}
	root := &cobra.Command{
		Use:   "dev",
		Short: "Belay with everything it needs in one process",
		Long: "Runs Temporal, its UI, Redis and Belay's worker in one process until Ctrl-C.\n" +
			"State is in memory unless --data keeps it. `dev run FILE` boots the same on\n" +
			"free ports, runs one pipeline and ends with its exit code.",
		Example: "  go run ./dev\n" +
			"  go run ./dev --data .belay\n" +
			"  go run ./dev run examples/hello.yaml",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return bad(err)
			}
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
		TraverseChildren:  true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return up(cmd.Context(), f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return bad(err) })
	set := root.Flags()
	set.StringVar(&f.data, "data", "", "`directory` that keeps all state (default: memory)")
	set.StringVar(&f.redisURL, "redis-url", "", "use this Redis instead of starting one")
	set.IPVar(&f.ip, "ip", net.IPv4(127, 0, 0, 1), "`address` that Temporal, its UI and the worker's HTTP listen on; nothing of it asks for a password")
	set.IntVar(&f.port, "port", temporalPort, "port of Temporal; 0 takes a free one, as with the others")
	set.IntVar(&f.uiPort, "ui-port", uiPort, "port of Temporal's UI")
	set.IntVar(&f.redis, "redis-port", redisPort, "port of Redis, on the loopback interface")
	set.IntVar(&f.http, "http-port", httpPort, "port of the worker's HTTP")
	set.BoolVar(&f.headless, "headless", false, "leave out Temporal's UI")
	root.AddCommand(targetCommand(), &cobra.Command{
		Use:                "run FILE [flags of `starter run`]",
		Short:              "Boot everything, run one pipeline, and end with its exit code",
		DisableFlagParsing: true, // they are those of the command line
		RunE: func(cmd *cobra.Command, args []string) error {
			f.freePorts(set.Changed)
			*code = runOnce(cmd.Context(), f, args, cmd.OutOrStdout(), cmd.ErrOrStderr())
			return nil
		},
	})
	return root
}

// freePorts takes free ports wherever none was asked for, so that a single run
// never meets something that is up already.
func (f *flags) freePorts(asked func(flag string) bool) {
	for flag, port := range map[string]*int{
		"port": &f.port, "ui-port": &f.uiPort, "redis-port": &f.redis, "http-port": &f.http,
	} {
		if !asked(flag) {
			*port = 0
		}
	}
}

// say prints something for a person. What it is about works all the same where
// nobody can read it.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

// environment is the process's own.
func environment() func(string) (string, bool) { return os.LookupEnv }
