package devcmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"belay.run/dev/ports"
	"belay.run/dev/stack"
	"belay.run/dev/tempdir"
	"belay.run/internal/config"
	"belay.run/internal/telemetry"
	"belay.run/internal/tracing"
	"belay.run/internal/workspace"
)

// traceFlush is how long the last spans have to reach their collector.
const traceFlush = time.Second

// boot is everything that is set up for one environment.
type boot struct {
	*stack.Stack

	log    *logFile
	http   string // where the worker answers, where it does
	traces *tracing.Tracing
	tmp    *tempdir.Dir // removed at the end, where there is one
}

// start boots what the flags ask for. Ephemeral means that nothing of it is
// wanted after this process, not even logs.
func (f *flags) start(ctx context.Context, ephemeral bool, also console) (*boot, error) {
	b := &boot{}
	if err := b.boot(ctx, f, ephemeral, also); err != nil {
		return nil, errors.Join(err, b.stop(ctx))
	}
	return b, nil
}

func (b *boot) boot(ctx context.Context, f *flags, ephemeral bool, also console) error {
	settings, err := config.FromEnvironment(environment())
	if err != nil {
		return fmt.Errorf("reading the worker's settings: %w", err)
	}
	home, err := b.home(f.data)
	if err != nil {
		return err
	}
	settings.StateDir = filepath.Join(home, "worker")
	if _, given := environment()("BELAY_STORE"); !given {
		switch {
		case f.data != "":
			settings.Store = storeURL(filepath.Join(home, "store"))
		case ephemeral:
			settings.Store = "" // beside the rest of the stack, and gone with it
		}
	}
	settings.HTTPAddress = config.HTTPOff
	if !ephemeral || f.http != 0 {
		ip := f.ip.String()
		port, err := ports.Take(ctx, "the worker's HTTP", "--http-port", ip, f.http)
		if err != nil {
			return err
		}
		defer port.Release()
		settings.HTTPAddress = net.JoinHostPort(ip, strconv.Itoa(port.Number))
		// Whoever listens elsewhere and names no tokens gets health and metrics.
		settings.HTTPAPIOff = settings.HTTPAPIOff || !f.ip.IsLoopback() && len(settings.HTTPTokens) == 0
		b.http = "http://" + ports.Join(ip, port.Number)
		if settings.HTTPTLS.Cert != "" {
			b.http = "https://" + ports.Join(ip, port.Number)
		}
	}
	b.log = &logFile{path: filepath.Join(home, "dev.log")}
	logger, err := telemetry.NewLogger(b.log, settings.LogLevel, telemetry.FormatJSON)
	if err != nil {
		return err
	}
	// It is one for the whole process; by default it would write to the terminal.
	redis.SetLogger(telemetry.Redis(logger.Named("redis")))
	warn := func(err error) { logger.Warn("traces cannot be delivered; this is said once", zap.Error(err)) }
	if b.traces, err = tracing.Open(ctx, "belay-dev", warn); err != nil {
		logger.Warn("no traces are recorded", zap.Error(err))
	}
	b.Stack, err = stack.Start(ctx, stack.Options{
		IP: f.ip.String(), Port: f.port, UIPort: f.uiPort, RedisPort: f.redis, Headless: f.headless,
		Data: f.data, RedisURL: f.redisURL, Worker: settings, Log: also.beside(logger), Tracing: b.traces,
	})
	return err
}

// home is where the worker keeps its state and the log lies: the data
// directory, or one in the user's cache, so that the caches of builds outlive a
// single run. Where that is missing or another dev has it, a temporary one.
func (b *boot) home(data string) (string, error) {
	if data != "" {
		path, err := filepath.Abs(data)
		if err != nil {
			return "", fmt.Errorf("finding the data directory %s: %w", data, err)
		}
		if err := os.MkdirAll(path, 0o700); err != nil {
			return "", fmt.Errorf("creating the data directory: %w", err)
		}
		return path, nil
	}
	if cache, err := os.UserCacheDir(); err == nil {
		path := filepath.Join(cache, "belay", "dev")
		if usable(filepath.Join(path, "worker")) {
			return path, nil
		}
	}
	tmp, err := tempdir.New("home-")
	if err != nil {
		return "", err
	}
	b.tmp = tmp
	return tmp.Path, nil
}

// usable reports whether a worker can have the state directory dir now.
func usable(dir string) bool {
	h, err := workspace.Open(dir)
	if err != nil {
		return false
	}
	return h.Close() == nil
}

func storeURL(dir string) string { return "file://" + filepath.ToSlash(dir) }

// stop stops everything and removes what is not to be kept.
func (b *boot) stop(ctx context.Context) error {
	var errs []error
	if b.Stack != nil {
		errs = append(errs, b.Stop(ctx))
	}
	b.traces.Close(traceFlush)
	if b.log != nil {
		errs = append(errs, b.log.Close())
	}
	if b.tmp != nil {
		errs = append(errs, b.tmp.Remove())
	}
	return errors.Join(errs...)
}
