package retention

import (
	"context"
	"fmt"
	"strings"
	"time"

	"belay.run/internal/liveness"
)

// class is a folder of the store, each entry of which is removed whole.
type class struct {
	kind   Kind
	what   string // in words
	folder string
	after  time.Duration
	// runs: its entries bear run keys. Of others nobody knows who uses them: they
	// stay while anything is open that may.
	runs bool
	// free: nothing that is open uses them.
	free bool
}

func (s *Sweeper) classes() []class {
	r := s.cfg.Rules
	outputs := r.Artifacts
	if outputs != 0 {
		outputs = max(outputs, outputsLeast)
	}
	return []class{
		{kind: Logs, what: "logs", folder: "logs", after: r.Logs, runs: true},
		{kind: Artifacts, what: "sources", folder: "source", after: r.Artifacts},
		{kind: Artifacts, what: "artifacts", folder: "artifacts", after: r.Artifacts},
		{kind: Artifacts, what: "outputs of keys", folder: "claims", after: outputs, runs: true},
		{kind: Batches, what: "batches", folder: "batches", after: r.Batches},
		{what: "reports of workers", folder: "workers", after: reportsFor, free: true},
	}
}

// before is the time before which everything in an entry must have been written
// for it to go.
func (c *class) before(now time.Time, open *liveness.All) time.Time {
	before := now.Add(-c.after)
	if c.runs || c.free || open.Oldest.IsZero() {
		return before
	}
	if used := open.Oldest.Add(-early); used.Before(before) {
		return used
	}
	return before
}

// sweep removes the old entries of a class, and says whether there are more than
// one sweep removes.
func (s *Sweeper) sweep(ctx context.Context, c *class, now time.Time, open *liveness.All) (removed int, more bool, err error) {
	before := c.before(now, open)
	old, more, err := s.old(ctx, c, before, open)
	if err != nil {
		return 0, false, err
	}
	for _, entry := range old {
		// It was listed a while ago: who packs the same again has renewed it, and a
		// run may have gone on.
		young, err := s.young(ctx, entry, before)
		if err != nil {
			return removed, more, err
		}
		if young {
			continue
		}
		if err := s.cfg.Store.Delete(ctx, entry); err != nil {
			return removed, more, err
		}
		removed++
	}
	return removed, more, nil
}

// old lists the entries with an object that is old, some of which may have young
// ones too. It holds no more of them than one sweep removes.
func (s *Sweeper) old(ctx context.Context, c *class, before time.Time, open *liveness.All) (entries []string, more bool, err error) {
	seen := map[string]bool{}
	for info, err := range s.cfg.Store.List(ctx, c.folder) {
		if err != nil {
			return nil, false, fmt.Errorf("listing: %w", err)
		}
		rest, inside := strings.CutPrefix(info.Key, c.folder+"/")
		name, _, _ := strings.Cut(rest, "/")
		if !inside || name == "" || seen[name] || !info.Modified.Before(before) || c.runs && open.Runs[name] {
			continue
		}
		if len(entries) == s.cfg.Most {
			return entries, true, nil
		}
		seen[name] = true
		entries = append(entries, c.folder+"/"+name)
	}
	return entries, false, nil
}

// young reports whether anything in an entry was written since.
func (s *Sweeper) young(ctx context.Context, entry string, since time.Time) (bool, error) {
	for info, err := range s.cfg.Store.List(ctx, entry) {
		if err != nil {
			return false, fmt.Errorf("listing %s: %w", entry, err)
		}
		if !info.Modified.Before(since) {
			return true, nil
		}
	}
	return false, nil
}
