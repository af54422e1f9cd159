// Package stack boots Belay and everything that it needs in one process:
// Temporal, its UI and Redis, all at once, and then the worker.
package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"belay.run/dev/devserver"
	"belay.run/dev/ports"
	"belay.run/dev/redisd"
	"belay.run/dev/ui"
	"belay.run/internal/config"
	"belay.run/internal/seal"
	"belay.run/internal/secret"
	"belay.run/internal/tracing"
)

// Options say what is booted and where it listens. The zero value is a stack in
// memory on free ports of the loopback interface.
type Options struct {
	// IP is the address that Temporal and its UI listen on. Redis has no
	// password and stays on the loopback interface. Defaults to 127.0.0.1.
	IP string

	// Port, UIPort and RedisPort are where the three listen. Default to free
	// ports.
	Port, UIPort, RedisPort int

	// Headless leaves out the UI.
	Headless bool

	// Data is the directory that keeps the state. Defaults to memory.
	Data string

	// RedisURL names a Redis that runs already.
	RedisURL string

	// Worker are the settings of Belay's worker; where Redis is and, unless it
	// is set, where the state is are filled in. Defaults to no worker.
	Worker *config.Config

	// Server is what else the Temporal server is told; its IP, Port and Dir
	// are those above.
	Server devserver.Options

	// Log takes what the worker has to say, and the Temporal server at level
	// error. Defaults to nothing.
	Log *zap.Logger

	// Tracing takes the spans of what the worker runs. Defaults to none.
	Tracing *tracing.Tracing
}

// Stack is everything that was booted.
type Stack struct {
	Temporal *devserver.Server
	Redis    *redisd.Server
	// UI is nil where it was left out.
	UI *ui.Server
	// Dir holds the state: the data directory, or a temporary one that goes
	// with the stack.
	Dir string
	// Settings are those of the worker, filled in; nil where there is none.
	Settings *config.Config

	dir    *dir
	worker *worker
	once   sync.Once
	err    error
}

// Start boots everything at once and returns when all of it answers. If one
// part cannot start, those that did are stopped.
func Start(ctx context.Context, opts Options) (*Stack, error) {
	d, err := openDir(opts.Data)
	if err != nil {
		return nil, err
	}
	s := &Stack{Dir: d.path, dir: d}
	if err := s.boot(ctx, opts); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

func (s *Stack) boot(ctx context.Context, opts Options) error {
	// Found here, since the UI starts beside the server that it shows.
	ip := cmp.Or(opts.IP, "127.0.0.1")
	port, err := ports.Take(ctx, "Temporal", "--port", ip, opts.Port)
	if err != nil {
		return err
	}
	defer port.Release()
	server := opts.Server
	server.IP, server.Port, server.Dir = ip, port.Number, s.dir.durable("temporal")
	server.Namespace = cmp.Or(server.Namespace, "default")
	server.Log = cmp.Or(server.Log, errorsOf(opts.Log))
	if server.Codec, err = codecOf(ctx, opts.Worker); err != nil {
		return err
	}

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.serve(ctx, server, opts) })
	if !opts.Headless {
		g.Go(func() (err error) {
			s.UI, err = ui.Start(ctx, ui.Options{
				IP: ip, Port: opts.UIPort, Frontend: ports.Join(ip, port.Number), Namespace: server.Namespace,
			})
			return err
		})
	}
	return g.Wait()
}

// codecOf is the codec of the worker, which all clients of the stack share.
func codecOf(ctx context.Context, settings *config.Config) (*seal.Codec, error) {
	if settings == nil {
		return new(seal.Codec), nil
	}
	secrets, err := secret.Open(settings.Secrets...)
	if err != nil {
		return nil, fmt.Errorf("opening the providers of secrets: %w", err)
	}
	return settings.PayloadCodec(ctx, secrets)
}

// serve starts Temporal and Redis, and on them the worker.
func (s *Stack) serve(ctx context.Context, server devserver.Options, opts Options) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		s.Temporal, err = devserver.Start(gctx, server)
		return err
	})
	g.Go(func() (err error) {
		s.Redis, err = redisd.Start(gctx, redisd.Options{
			URL: opts.RedisURL, Port: opts.RedisPort, Dir: s.dir.durable("redis"),
		})
		return err
	})
	if err := g.Wait(); err != nil || opts.Worker == nil {
		return err
	}
	settings := *opts.Worker
	settings.RedisURL, settings.RedisLogsURL = s.Redis.URL, s.Redis.URL
	if settings.StateDir == "" {
		settings.StateDir = filepath.Join(s.Dir, "worker")
	}
	settings.Store = cmp.Or(settings.Store, s.StoreURL())
	// What people try here listens on their own machine.
	settings.LightAllow = append(slices.Clone(settings.LightAllow), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
	// And what people try here are their own secrets.
	settings.LightSecrets = append(slices.Clone(settings.LightSecrets), secret.Grant{Tenant: secret.Any, Secret: secret.Any})
	s.Settings = &settings
	var err error
	s.worker, err = startWorker(ctx, s.Temporal, &settings, &opts)
	return err
}

// StoreURL is where the worker keeps logs and artifacts unless its settings say
// otherwise.
func (s *Stack) StoreURL() string {
	return "file://" + filepath.ToSlash(filepath.Join(s.Dir, "store"))
}

// The names of the loggers of Temporal's server and its SDK.
const (
	serverLogger = "server"
	sdkLogger    = "temporal"
)

// LoudLoggers are the names of loggers that warn of much that means nothing
// here.
func LoudLoggers() []string { return []string{serverLogger, sdkLogger} }

// errorsOf leaves of a log only what is at least an error: the server finds
// much worth a warning that means nothing here.
func errorsOf(log *zap.Logger) *zap.Logger {
	if log == nil {
		return nil
	}
	return log.Named(serverLogger).WithOptions(zap.IncreaseLevel(zap.ErrorLevel))
}

// Drain lets the worker take no more stages and waits until those that it has
// are over, or until ctx ends.
func (s *Stack) Drain(ctx context.Context) error {
	if s.worker == nil {
		return nil
	}
	return s.worker.host.Drain(ctx)
}

// Stages is how many stages the worker has.
func (s *Stack) Stages() int {
	if s.worker == nil {
		return 0
	}
	return s.worker.host.Health().Stages
}

// Stop stops everything, at once, and returns when it is gone. It has bounds of
// its own and does not end with ctx. It may be called twice.
func (s *Stack) Stop(ctx context.Context) error {
	s.once.Do(func() { s.err = s.stop(context.WithoutCancel(ctx)) })
	return s.err
}

func (s *Stack) stop(ctx context.Context) error {
	errs := make([]error, 4)
	if s.worker != nil {
		errs[3] = s.worker.stop(ctx)
	}
	if s.UI != nil {
		s.UI.Stop()
	}
	var wg sync.WaitGroup
	if s.Temporal != nil {
		wg.Go(func() { errs[0] = s.Temporal.Stop() })
	}
	if s.Redis != nil {
		wg.Go(func() { errs[1] = s.Redis.Stop() })
	}
	wg.Wait()
	errs[2] = s.dir.close()
	return errors.Join(errs...)
}
