// Package e2e is the kit of end-to-end tests: Belay with a real Temporal, a real
// Redis and real processes. Tests wait for conditions with deadlines and never
// for time to pass.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"belay.run/dev/devserver"
	"belay.run/dev/stack"
	"belay.run/internal/config"
	"belay.run/internal/container"
	"belay.run/internal/logs"
	"belay.run/internal/store"
	"belay.run/internal/testkit/need"
	"belay.run/internal/tracing"
	"belay.run/starter/runs"
)

const startTimeout = time.Minute

// Options say what an environment is made of. The zero value is one in memory
// with a worker in this process.
type Options struct {
	// Data keeps the state, so that another environment can go on with it.
	Data string

	// RedisURL names a Redis that runs already, and that a test may stop.
	RedisURL string

	// NoWorker leaves out the worker in this process.
	NoWorker bool

	// Secrets is a directory of secrets, a file each, for the worker in this
	// process.
	Secrets string

	// Log takes what that worker says; nil drops it.
	Log *zap.Logger

	// Tracing takes the spans of that worker and of commands.
	Tracing *tracing.Tracing

	// Settings are further settings of that worker, as flags.
	Settings []string
}

// Env is an environment that is up.
type Env struct {
	*stack.Stack

	// Runs reads runs and asks things of them.
	Runs *runs.Client
	// Store and Logs are where the workers keep theirs.
	Store store.Store
	Logs  *logs.Logs

	// Getenv is the environment of commands; nil is that of the process.
	Getenv func(name string) string

	// redis is for claims and their audit. Logs have a client of their own: who
	// follows one holds a connection, and a crowd of commands would hold them all.
	redis, logsRedis redis.UniversalClient
	tracing          *tracing.Tracing
}

// Start boots an environment that ends with the test.
func Start(t *testing.T, opts Options) *Env {
	t.Helper()
	need.Program(t, "redis-server", "apt-get install redis-server")
	e, err := start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.stop(context.WithoutCancel(t.Context()))) })
	return e
}

func start(ctx context.Context, opts Options) (*Env, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	settings, err := workerSettings(opts)
	if err != nil {
		return nil, err
	}
	booted, err := stack.Start(ctx, stack.Options{Headless: true, Data: opts.Data, RedisURL: opts.RedisURL, Worker: settings, Tracing: opts.Tracing, Log: opts.Log})
	if err != nil {
		return nil, err
	}
	e := &Env{Stack: booted, tracing: opts.Tracing, Runs: runs.New(booted.Temporal.Client(), booted.Temporal.Namespace(), "")}
	if err := e.open(ctx); err != nil {
		return nil, errors.Join(err, e.stop(ctx))
	}
	return e, nil
}

// workerSettings are those of the worker in this process; nil where there is
// none. The environment of the tests has no say in them.
func workerSettings(opts Options) (*config.Config, error) {
	if opts.NoWorker {
		return nil, nil //nolint:nilnil // none is a way to run
	}
	args := []string{"--http-address", config.HTTPOff, "--state-dir", os.TempDir()}
	if opts.Secrets != "" {
		args = append(args, "--secrets", "dir:"+opts.Secrets)
	}
	none := func(string) (string, bool) { return "", false }
	settings, err := config.Load(append(args, opts.Settings...), none)
	if err != nil {
		return nil, fmt.Errorf("reading the settings of the worker: %w", err)
	}
	settings.StateDir, settings.Store = "", "" // the stack's
	return settings, nil
}

func (e *Env) open(ctx context.Context) error {
	var err error
	if e.redis, err = config.NewRedis(e.Redis.URL); err != nil {
		return err
	}
	if e.logsRedis, err = config.NewRedis(e.Redis.URL); err != nil {
		return err
	}
	if e.Store, err = store.Open(ctx, e.StoreURL(), e.redis); err != nil {
		return err
	}
	e.Logs = logs.New(e.Store, e.logsRedis)
	return nil
}

func (e *Env) stop(ctx context.Context) error {
	var errs []error
	if e.Logs != nil {
		e.Logs.Close()
	}
	if e.Store != nil {
		errs = append(errs, e.Store.Close())
	}
	for _, c := range []redis.UniversalClient{e.redis, e.logsRedis} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(append(errs, e.Stop(ctx))...)
}

// RestartTemporal ends Temporal and starts it again at the same address, on the
// state that Data keeps. Nobody else may use the environment meanwhile.
func (e *Env) RestartTemporal(t *testing.T) {
	t.Helper()
	host, text, err := net.SplitHostPort(e.Temporal.Address())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	namespace := e.Temporal.Namespace()
	require.NoError(t, e.Temporal.Stop())
	e.Temporal, err = devserver.Start(t.Context(), devserver.Options{
		IP: host, Port: port, Namespace: namespace, Dir: filepath.Join(e.Dir, "temporal"), Codec: e.Temporal.Codec(),
	})
	require.NoError(t, err)
	e.Runs = runs.New(e.Temporal.Client(), namespace, "")
}

// Shared is one environment for all tests of a package: it starts with the
// first that asks for it and ends with the last. The package's TestMain runs
// [Shared.Main].
type Shared struct {
	// Options are those of the environment.
	Options Options

	once sync.Once
	env  *Env
	err  error
}

// Main runs the tests and returns the exit code. In a process that is to be a
// worker it is that worker.
func (s *Shared) Main(m *testing.M) int {
	if code, was := container.RunAsClient(os.Args, os.Stdout, os.Stderr); was {
		return code
	}
	if os.Getenv(workerVariable) != "" {
		return workerMain()
	}
	code := m.Run()
	if s.env != nil {
		if err := s.env.stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "ending the shared environment:", err)
			return max(code, 1)
		}
	}
	return code
}

// Get returns the environment.
func (s *Shared) Get(t *testing.T) *Env {
	t.Helper()
	need.Program(t, "redis-server", "apt-get install redis-server")
	// It outlives the test that happens to be the first.
	s.once.Do(func() { s.env, s.err = start(context.WithoutCancel(t.Context()), s.Options) })
	require.NoError(t, s.err, "starting the shared environment")
	return s.env
}
