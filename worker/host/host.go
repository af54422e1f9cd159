// Package host is the worker process of Belay: it takes workflows, control
// activities and light steps from the queues that all workers share, takes
// stages onto this host, and runs their steps from the host's own queue.
package host

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"belay.run/internal/config"
	"belay.run/internal/metrics"
	"belay.run/internal/seal"
	"belay.run/internal/secret"
	"belay.run/internal/store"
	"belay.run/internal/telemetry"
	"belay.run/internal/tracing"
	"belay.run/internal/workspace"
	"belay.run/worker/api"
)

// Config is what a worker is made of.
type Config struct {
	// Settings are the worker's settings; they are needed.
	Settings *config.Config
	// Temporal is the connection to use. Nil: Start connects as the
	// environment says, and Stop closes.
	Temporal *config.Temporal
	// Redis and RedisLogs are the clients to use. Nil: Start connects as the
	// settings say, and Stop closes. Without either there is no Redis.
	Redis     redis.UniversalClient
	RedisLogs redis.UniversalClient
	// Store keeps logs and artifacts. Nil: the one that the settings name.
	Store store.Store
	// Metrics are counted in, by whoever has told the connection to Temporal of
	// them, too. Nil: new ones.
	Metrics *metrics.Metrics
	// Logger takes what the worker has to say. Nil drops it.
	Logger *zap.Logger

	// Tracing takes the spans of what the worker runs. Nil: none are recorded.
	Tracing *tracing.Tracing

	// environ says how to find Temporal; nil is the process's environment.
	environ []string
}

// Worker is the worker of one host. It is started once and stopped once.
type Worker struct {
	cfg      Config
	log      *zap.Logger
	host     *workspace.Host
	identity string
	state    readiness
	running  *running
	metrics  *metrics.Metrics
	api      *api.API // nil where it is off
	crowd    *crowd
	codec    *seal.Codec
	codecAPI http.Handler // nil where it is off

	deps   deps
	once   once
	stages *stages
	queues queues

	failed   chan error
	stopOnce sync.Once
	stopErr  error
	closers  []func() error // undone from the last to the first
}

// New takes the state directory, reads the keys and tokens and opens the HTTP address, so
// that all are refused before anything is waited for. Whoever gets a worker calls Stop.
func New(cfg Config) (*Worker, error) {
	if cfg.Settings == nil {
		return nil, errors.New("making a worker: its settings are needed")
	}
	w := &Worker{cfg: cfg, log: telemetry.OrNop(cfg.Logger), running: newRunning(), crowd: newCrowd(), metrics: cfg.Metrics, failed: make(chan error, 1)}
	if w.metrics == nil {
		w.metrics = metrics.New()
	}
	w.state.set(StatusStarting)

	host, err := workspace.Open(cfg.Settings.StateDir)
	if err != nil {
		return nil, err
	}
	w.host = host
	w.onStop(host.Close)
	w.metrics.WatchHost(w.status)
	// A machine without a name is one less word in the UI.
	name, _ := os.Hostname()
	w.identity = fmt.Sprintf("belay/%s@%s", host.ID(), name)

	own, err := secret.Open(cfg.Settings.Secrets...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the providers of secrets: %w", err), w.close())
	}
	w.deps.secrets = secret.Reserve(own, cfg.Settings.OwnSecrets()...)
	if w.codec, err = cfg.Settings.PayloadCodec(context.Background(), own); err != nil {
		return nil, errors.Join(err, w.close())
	}
	l, err := w.listen(context.Background())
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	if l != nil {
		if err := errors.Join(w.openAPI(l, own), w.openCodec(l, own)); err != nil {
			return nil, errors.Join(err, l.Close(), w.close())
		}
		w.onStop(w.serve(l))
		w.log.Info("listening", zap.String("address", l.Addr().String()))
	}
	return w, nil
}

// ID is the host's id.
func (w *Worker) ID() string { return w.host.ID() }

// Queue is the host's task queue.
func (w *Worker) Queue() string { return w.host.Queue() }

// Health says what /readyz says.
func (w *Worker) Health() Health {
	h := w.state.health()
	h.Host, h.Queue = w.host.ID(), w.host.Queue()
	// What cannot be read is not counted; the sweep says why.
	bound, _ := w.host.Bindings()
	h.Stages = len(bound)
	return h
}

// fail notes the first error after which the worker cannot go on.
func (w *Worker) fail(err error) {
	select {
	case w.failed <- err:
	default:
	}
}

func (w *Worker) onStop(f func() error) { w.closers = append(w.closers, f) }

// close undoes what was opened, the last first.
func (w *Worker) close() error {
	var errs []error
	for len(w.closers) > 0 {
		last := len(w.closers) - 1
		errs = append(errs, w.closers[last]())
		w.closers = w.closers[:last]
	}
	return errors.Join(errs...)
}
