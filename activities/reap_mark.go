package activities

import (
	"context"
	"errors"
	"time"

	"belay.run/internal/resource"
	"belay.run/internal/run"
)

// MarkInput are entries that nobody could be asked to release.
type MarkInput struct {
	Entries []resource.Entry `json:"entries"`
}

// MarkLeaked writes down that nobody could be asked to release some entries, and
// why. One that is released meanwhile stays so.
func (r *Reaper) MarkLeaked(ctx context.Context, in MarkInput) error {
	unstick(ctx, r.cfg.Client, r.cfg.Namespace)
	var errs []error
	for _, e := range in.Entries {
		e.State, e.Since = run.ResourceLeaked, time.Now().UTC()
		errs = append(errs, r.cfg.Ledger.Note(ctx, e))
	}
	return errors.Join(errs...)
}
