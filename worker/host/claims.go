package host

import (
	"context"
	"time"

	"go.uber.org/zap"

	"belay.run/activities"
)

// restoreWithin bounds one look for claims that Redis has lost.
const restoreWithin = 10 * time.Second

// newClaims makes the activities that claim keys. Without Redis they claim
// nothing: what has a key and is at high risk fails then, and says so.
func (w *Worker) newClaims() *activities.Claims {
	t := w.deps.temporal
	cfg := activities.ClaimsConfig{
		Client: t.Client, Namespace: t.Namespace, Store: w.deps.store, Meter: w.metrics, Logger: w.log.Named("dedup"),
	}
	if o := &w.once; o.claims != nil {
		cfg.Claims, cfg.Audit, cfg.Durations = o.claims, o.audit, o.durations
	}
	return activities.NewClaims(cfg)
}

// restoreClaims puts back what Redis has lost of the claims of open runs.
func (w *Worker) restoreClaims(ctx context.Context) {
	if w.once.claims == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, restoreWithin)
	defer cancel()
	if err := activities.RestoreClaims(ctx, w.deps.claims); err != nil {
		w.log.Debug("could not look for claims that Redis has lost; trying again", zap.Error(err))
	}
}
