package stack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"

	"belay.run/activities"
	"belay.run/dev/devserver"
	"belay.run/internal/config"
	"belay.run/internal/metrics"
	"belay.run/internal/telemetry"
	"belay.run/worker/host"
)

// workerStop bounds the stop of the worker: longer than its own bounds.
const workerStop = 30 * time.Second

// worker is a Belay worker and its connection.
type worker struct {
	host   *host.Worker
	client client.Client
}

// startWorker starts a worker on the server. The settings have what it needs to
// know of Redis and the store.
func startWorker(ctx context.Context, server *devserver.Server, settings *config.Config, opts *Options) (*worker, error) {
	log := telemetry.OrNop(opts.Log)
	counts := metrics.New()
	measured, err := counts.Temporal(log)
	if err != nil {
		return nil, err
	}
	c, err := server.Dial(ctx, client.Options{
		MetricsHandler:          measured,
		Logger:                  telemetry.Temporal(log.Named(sdkLogger)),
		WorkerHeartbeatInterval: activities.WorkerHeartbeat,
	})
	if err != nil {
		return nil, err
	}
	w := &worker{client: c}
	w.host, err = host.New(host.Config{
		Settings: settings,
		Temporal: &config.Temporal{Client: c, Address: server.Address(), Namespace: server.Namespace()},
		Metrics:  counts,
		Logger:   log,
		Tracing:  opts.Tracing,
	})
	if err == nil {
		err = w.host.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting the worker: %w", err), w.stop(context.WithoutCancel(ctx)))
	}
	return w, nil
}

// stop ends the worker and all that it runs, at once.
func (w *worker) stop(ctx context.Context) error {
	defer w.client.Close()
	if w.host == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, workerStop)
	defer cancel()
	return w.host.Stop(ctx)
}
