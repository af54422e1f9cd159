package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/durations"
	"belay.run/internal/liveness"
)

const (
	// flushEvery is how often what was counted in memory goes to Redis.
	flushEvery = 10 * time.Second
	// flushWithin bounds the last flush, when the worker stops.
	flushWithin = 3 * time.Second
)

// once is what keeps things from running twice; all nil without a Redis.
type once struct {
	claims    *dedup.Observed
	audit     *audit.Log
	meter     *audit.Meter
	durations *durations.Durations
	sweep     *claimSweep
}

// openOnce opens the claims and what is known about them.
func (w *Worker) openOnce() error {
	rdb := w.deps.redis
	if rdb == nil {
		return nil
	}
	o := &w.once
	o.audit = audit.New(rdb, audit.Options{
		Retention: w.cfg.Settings.Retention.Audit, Logger: w.log.Named("dedup"), Observe: w.metrics.Audited, Later: true,
	})
	o.meter = audit.NewMeter(rdb)
	o.durations = durations.New(rdb)
	claims, err := dedup.Open(rdb, dedup.Options{Log: w.log.Named("dedup"), Tier: true})
	if err != nil {
		return fmt.Errorf("opening the claims: %w", err)
	}
	o.claims = dedup.Observe(claims, dedup.Observers{w.metrics, o.meter})
	w.metrics.WatchTier(claims.TierUp)
	w.onStop(func() error { claims.Close(); return nil })
	o.sweep = &claimSweep{
		claims: claims, audit: o.audit, host: w.ID(), rdb: rdb, log: w.log.Named("dedup"),
		alive: liveness.New(w.deps.temporal.Client, w.deps.temporal.Namespace).Ask, swept: w.metrics.Swept,
	}
	w.onStop(background(w.tendOnce))
	return nil
}

// tendOnce flushes and sweeps until ctx ends.
func (w *Worker) tendOnce(ctx context.Context) {
	flush, sweep := time.NewTicker(flushEvery), time.NewTicker(claimSweepEvery)
	defer flush.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
			defer cancel()
			w.flushOnce(last)
			return
		case <-flush.C:
			w.flushOnce(ctx)
		case <-sweep.C:
			if _, err := w.once.sweep.run(ctx); err != nil && ctx.Err() == nil {
				w.log.Warn("could not look at all claims; the next sweep tries again", zap.Error(err))
			}
		}
	}
}

// flushOnce writes what waits in memory. What cannot be written waits on.
func (w *Worker) flushOnce(ctx context.Context) {
	err := errors.Join(w.once.audit.Flush(ctx), w.once.meter.Flush(ctx))
	if err != nil && ctx.Err() == nil {
		w.log.Debug("could not write what was counted about claims; later", zap.Error(err))
	}
}
