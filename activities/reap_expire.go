package activities

import (
	"context"

	"belay.run/internal/retention"
)

// Expire removes what was kept for long enough, by the settings of the worker that
// happens to do it.
func (r *Reaper) Expire(ctx context.Context) (*retention.Result, error) {
	unstick(ctx, r.cfg.Client, r.cfg.Namespace)
	defer beating(ctx)()
	if r.cfg.Expire == nil {
		return &retention.Result{}, nil
	}
	return r.cfg.Expire(ctx)
}
