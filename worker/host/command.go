package host

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"go.uber.org/zap"

	"belay.run/internal/config"
	"belay.run/internal/proc"
	"belay.run/internal/telemetry"
)

// Exit codes of the worker.
const (
	exitOK     = 0 // drained and stopped, or asked for help
	exitFailed = 1 // could not go on, or did not end everything
	exitUsage  = 2 // settings that are wrong
)

// Main is the worker as a program: it reads the settings from the arguments
// and the environment, runs until SIGTERM or SIGINT and returns the exit code.
// The first signal drains, the second ends everything at once.
func Main(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && (args[0] == "version" || args[0] == "--version") {
		fmt.Fprintln(stdout, "belay worker", version())
		return exitOK
	}
	settings, err := config.Load(args, os.LookupEnv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return help(stdout, stderr)
	case err != nil:
		fmt.Fprintf(stderr, "worker: %v\n", err)
		return exitUsage
	}
	if err := proc.Harden(); err != nil {
		fmt.Fprintf(stderr, "worker: %v\n", err)
		return exitFailed
	}
	log, err := telemetry.NewLogger(stderr, settings.LogLevel, settings.LogFormat)
	if err != nil {
		fmt.Fprintf(stderr, "worker: %v\n", err)
		return exitUsage
	}
	if err := runUntilSignal(settings, log); err != nil {
		log.Error("the worker ended with an error", zap.Error(err))
		return exitFailed
	}
	return exitOK
}

func help(stdout, stderr io.Writer) int {
	fmt.Fprint(stdout, "Runs stages and their steps on this machine. SIGTERM drains, a second one ends all at once.\n\n"+
		"Usage: worker [--flag value]…\n       worker version\n\n"+
		"Temporal is found by its own variables (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …) and profile file.\n\n")
	if err := config.Usage(stdout); err != nil {
		fmt.Fprintf(stderr, "worker: %v\n", err)
		return exitFailed
	}
	return exitOK
}

var (
	errDrain = errors.New("asked to stop by a signal")
	errNow   = errors.New("asked to stop at once by a second signal")
)

// runUntilSignal runs a worker until it has drained or failed.
func runUntilSignal(settings *config.Config, log *zap.Logger) error {
	ctx, drain := context.WithCancelCause(context.Background())
	hurry, now := context.WithCancelCause(context.Background())
	defer drain(nil)
	defer now(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	go func() {
		for _, step := range []func(){func() { drain(errDrain) }, func() { now(errNow) }} {
			select {
			case s := <-signals:
				log.Info("signal", zap.Stringer("signal", s))
				step()
			case <-hurry.Done():
				return
			}
		}
	}()
	w, err := New(Config{Settings: settings, Logger: log})
	if err != nil {
		return err
	}
	return w.run(ctx, hurry)
}

// version is the module's version, or the revision that was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v += " (" + s.Value + ")"
		}
	}
	return v
}
