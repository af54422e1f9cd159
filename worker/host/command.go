package host

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"belay.run/internal/config"
	"belay.run/internal/proc"
	"belay.run/internal/telemetry"
	"belay.run/internal/tracing"
	"belay.run/internal/version"
)

// Exit codes of the worker.
const (
	exitOK     = 0 // drained and stopped, or asked for help
	exitFailed = 1 // could not go on, or did not end everything
	exitUsage  = 2 // settings that are wrong
)

// traceFlush is how long the last spans have to reach their collector.
const traceFlush = 5 * time.Second

// Main is the worker as a program: it reads the settings from the arguments
// and the environment, runs until SIGTERM or SIGINT and returns the exit code.
// The first signal drains, the second ends everything at once.
func Main(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && (args[0] == "version" || args[0] == "--version") {
		return show(stdout, stderr, "belay worker "+version.String()+"\n")
	}
	settings, err := config.Load(args, os.LookupEnv)
	if errors.Is(err, flag.ErrHelp) {
		return show(stdout, stderr, helpText+config.Usage())
	}
	if err != nil {
		return complain(stderr, exitUsage, err)
	}
	if err := proc.Harden(); err != nil {
		return complain(stderr, exitFailed, err)
	}
	log, level, err := telemetry.NewAdjustable(stderr, settings.LogLevel, settings.LogFormat)
	if err != nil {
		return complain(stderr, exitUsage, err)
	}
	defer onUSR1(level, log)()
	redis.SetLogger(telemetry.Redis(log.Named("redis")))
	traces, err := tracing.Open(context.Background(), "belay-worker", func(err error) {
		log.Warn("traces cannot be delivered; this is said once", zap.Error(err))
	})
	if err != nil {
		// Other programs may know what they say: nothing stops because of traces.
		log.Warn("no traces are recorded", zap.Error(err))
	}
	defer traces.Close(traceFlush)
	if err := runUntilSignal(settings, log, traces); err != nil {
		log.Error("the worker ended with an error", zap.Error(err))
		if _, wrong := errors.AsType[*config.SettingError](err); wrong {
			return exitUsage
		}
		return exitFailed
	}
	return exitOK
}

// onUSR1 has the level of the log switch with each SIGUSR1, until the returned
// function is called.
func onUSR1(level zap.AtomicLevel, log *zap.Logger) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	end := background(func(ctx context.Context) { switchLevel(ctx, signals, level, log) })
	return func() {
		signal.Stop(signals)
		_ = end() // it only ends
	}
}

const helpText = `Runs stages and their steps on this machine. SIGTERM or Ctrl-C lets the stages
on it end; a second one ends everything at once.

Usage: worker [--setting=value]...
       worker version

Temporal is found by its own variables (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, ...)
and profile file. Settings, each also by the variable in parentheses:

`

func show(stdout, stderr io.Writer, text string) int {
	if _, err := io.WriteString(stdout, text); err != nil {
		return complain(stderr, exitFailed, err)
	}
	return exitOK
}

// complain says what is wrong before there is a log.
func complain(stderr io.Writer, code int, err error) int {
	// Where standard error is closed only the code is left to say it.
	_, _ = fmt.Fprintf(stderr, "worker: %v\n", err)
	return code
}

var (
	errDrain = errors.New("asked to stop by a signal")
	errNow   = errors.New("asked to stop at once by a second signal")
)

// runUntilSignal runs a worker until it has drained or failed.
func runUntilSignal(settings *config.Config, log *zap.Logger, traces *tracing.Tracing) error {
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
	w, err := New(Config{Settings: settings, Logger: log, Tracing: traces})
	if err != nil {
		return err
	}
	return w.run(ctx, hurry)
}
