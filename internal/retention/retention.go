// Package retention removes from the store what was kept for long enough: logs,
// archives of sources and artifacts, and batches. Of what is open it removes
// nothing.
package retention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/liveness"
	"belay.run/internal/store"
	"belay.run/internal/telemetry"
)

const (
	// Every is how often one of the workers that share a store sweeps it.
	Every = time.Hour
	// mark is the object whose age tells when the store was last swept.
	mark = "retention/last"
	// early is how long before the start of a run, or of a batch, what it uses may
	// have been stored: packing takes its time, and does not renew what is young.
	early = 24 * time.Hour
	// outputsLeast is how long outputs are kept at least that a key's record
	// refers to: the longest window, and what records are kept beyond it.
	outputsLeast = 40 * 24 * time.Hour
	// reportsFor is how long the report of a worker is kept that died without
	// taking it away.
	reportsFor = 7 * 24 * time.Hour
	// mostDefault bounds what one sweep removes of each kind.
	mostDefault = 10_000
)

// Kind is a kind of what is kept.
type Kind string

// The kinds.
const (
	Logs      Kind = "logs"
	Artifacts Kind = "artifacts"
	Batches   Kind = "batches"
	// Audit is that of duplicates, whose entries are in Redis.
	Audit Kind = "audit"
)

// Kinds lists all of them.
func Kinds() []Kind { return []Kind{Logs, Artifacts, Batches, Audit} }

// Rules say for how long each kind is kept; zero keeps it for ever.
type Rules struct {
	Logs, Artifacts, Batches time.Duration
}

// Config is what a Sweeper needs.
type Config struct {
	Store store.Store
	Rules Rules
	// Open says what is open. Where that fails nothing is removed.
	Open func(context.Context) (*liveness.All, error)
	// Audit removes old entries of the audit, and counts them; nil where there is
	// none.
	Audit func(ctx context.Context, now time.Time) (int, error)
	// Removed counts what was removed; it may be nil.
	Removed func(Kind, int)
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
	// Most is how many of each kind one sweep removes. Defaults to 10,000.
	Most   int
	Logger *zap.Logger
}

// Result counts what a sweep removed: the logs of so many runs, so many archives,
// batches, and entries of the audit.
type Result struct {
	Logs      int `json:"logs"`
	Artifacts int `json:"artifacts"`
	Batches   int `json:"batches"`
	Audit     int `json:"audit"`
	// More says that there is more than one sweep removes.
	More bool `json:"more,omitempty"`
}

// Any reports whether anything was removed.
func (r *Result) Any() bool { return r.Logs+r.Artifacts+r.Batches+r.Audit > 0 }

// Sweeper removes what is too old. It may be used by several workers on one store
// at the same time.
type Sweeper struct{ cfg Config }

// New returns a Sweeper.
func New(cfg Config) *Sweeper {
	cfg.Logger = telemetry.OrNop(cfg.Logger)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Most == 0 {
		cfg.Most = mostDefault
	}
	return &Sweeper{cfg: cfg}
}

// Due reports whether nobody has swept the store for an hour, and takes the turn.
func (s *Sweeper) Due(ctx context.Context) (bool, error) {
	info, err := s.cfg.Store.Stat(ctx, mark)
	switch {
	case err == nil && s.cfg.Now().Sub(info.Modified) < Every:
		return false, nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return false, fmt.Errorf("asking when the store was swept: %w", err)
	}
	// Two that take it at once do no harm, but do the work twice.
	if _, err := s.cfg.Store.Put(ctx, mark, bytes.NewReader(nil), 0); err != nil {
		return false, fmt.Errorf("noting that the store is swept: %w", err)
	}
	return true, nil
}

// Sweep removes what is too old. After an error it goes on with the next kind,
// and the result says what was removed all the same.
func (s *Sweeper) Sweep(ctx context.Context) (*Result, error) {
	now, res := s.cfg.Now(), &Result{}
	open, err := s.cfg.Open(ctx)
	if err != nil {
		return res, fmt.Errorf("nothing is removed by age: %w", err)
	}
	var errs []error
	for _, c := range s.classes() {
		if c.after == 0 {
			continue
		}
		n, more, err := s.sweep(ctx, &c, now, open)
		s.count(res, c.kind, n)
		res.More = res.More || more
		if err != nil {
			errs = append(errs, fmt.Errorf("removing old %s: %w", c.what, err))
		}
	}
	if s.cfg.Audit != nil {
		n, err := s.cfg.Audit(ctx, now)
		s.count(res, Audit, n)
		errs = append(errs, err)
	}
	if res.Any() {
		s.cfg.Logger.Info("removed what was kept for long enough", zap.Int("logs", res.Logs), zap.Int("artifacts", res.Artifacts),
			zap.Int("batches", res.Batches), zap.Int("audit", res.Audit), zap.Bool("more", res.More))
	}
	return res, errors.Join(errs...)
}

func (s *Sweeper) count(res *Result, kind Kind, n int) {
	switch kind {
	case Logs:
		res.Logs += n
	case Artifacts:
		res.Artifacts += n
	case Batches:
		res.Batches += n
	case Audit:
		res.Audit += n
	default:
		return // not worth a word
	}
	if s.cfg.Removed != nil && n > 0 {
		s.cfg.Removed(kind, n)
	}
}
