package host

import (
	"context"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/liveness"
	"belay.run/internal/retention"
)

const (
	// retentionEvery is how often a worker asks whether it is its turn to remove
	// what is too old.
	retentionEvery = 10 * time.Minute
	// retentionWithin bounds one sweep.
	retentionWithin = 30 * time.Minute
)

// newRetention makes what removes old things by the settings of this worker.
func (w *Worker) newRetention() *retention.Sweeper {
	census := liveness.NewCensus(liveness.New(w.deps.temporal.Client, w.deps.temporal.Namespace))
	keep := w.cfg.Settings.Retention
	cfg := retention.Config{
		Store: w.deps.store, Logger: w.log.Named("retention"), Removed: w.metrics.Expired,
		Rules: retention.Rules{Logs: keep.Logs, Artifacts: keep.Artifacts, Batches: keep.Batches},
		Open: func(ctx context.Context) (*liveness.All, error) {
			all, err := census.Open(ctx)
			if err != nil {
				return nil, err
			}
			if err := w.deps.ledger.Renew(ctx, all.Runs); err != nil {
				w.log.Warn("what open runs held may be forgotten early; the next sweep tries again", zap.Error(err))
			}
			return all, nil
		},
	}
	if w.once.audit != nil {
		cfg.Audit = w.once.audit.Trim
	}
	return retention.New(cfg)
}

// tendRetention sweeps now and then what is too old, until ctx ends. The workers of
// a store take turns.
func (w *Worker) tendRetention(ctx context.Context) {
	tick := time.NewTicker(retentionEvery)
	defer tick.Stop()
	for {
		if err := w.sweepRetention(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("could not remove all that is too old; the next sweep tries again", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *Worker) sweepRetention(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, retentionWithin)
	defer cancel()
	due, err := w.deps.retention.Due(ctx)
	if err != nil || !due {
		return err
	}
	_, err = w.deps.retention.Sweep(ctx)
	return err
}
