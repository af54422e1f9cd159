package dedup

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

const (
	// tierWeight is how many bytes the local tier holds, about.
	tierWeight = 32 << 20
	// entryWeight is what an entry weighs beside its texts.
	entryWeight = 700
	// trustFor is how long the tier answers after it has last proved that it
	// hears announcements.
	trustFor = 2 * time.Second
)

// tier answers from the memory of this process what Redis would answer too. It
// holds nothing but completed claims inside their window: all that can change
// about those is announced (a rerun, a release) or known ahead (the window). It
// never holds that somebody runs, since whoever runs ends unannounced.
//
// It answers only while it can prove that it hears announcements, and by two
// clocks: one that nobody sets, and one that goes on while the machine sleeps.
type tier struct {
	cache *otter.Cache[Key, *entry]
	now   func() time.Time
	base  time.Time
	// until, and untilWall by the other clock, is when the proof runs out.
	until, untilWall atomic.Int64
	// changes counts announcements and outages: what was asked before one must
	// not be kept after it.
	changes atomic.Uint64
}

// entry is a completed claim and the end of its window by this process's clocks.
type entry struct {
	stored
	until, untilWall int64
}

func newTier(now func() time.Time) (*tier, error) {
	if now == nil {
		now = time.Now
	}
	cache, err := otter.New(&otter.Options[Key, *entry]{MaximumWeight: tierWeight, Weigher: weigh})
	if err != nil {
		return nil, fmt.Errorf("making the local tier: %w", err)
	}
	return &tier{cache: cache, now: now, base: now()}, nil
}

func weigh(_ Key, e *entry) uint32 {
	r := &e.Record
	n := entryWeight + len(r.Key.Name) + len(r.Request.ID) + len(r.Request.Sender) + len(r.Result.Summary)
	for name, value := range r.Result.Outputs {
		n += len(name) + len(value)
	}
	return uint32(n)
}

// clock is the time since base, by both clocks.
func (t *tier) clock() (steady, wall int64) {
	now := t.now()
	return int64(now.Sub(t.base)), now.UnixNano()
}

// on reports whether the tier may answer at a time.
func (t *tier) on(steady, wall int64) bool {
	return steady < t.until.Load() && wall < t.untilWall.Load()
}

// answer decides a claim as Redis would, if it can.
func (t *tier) answer(claim *Claim) (Verdict, bool) {
	if t == nil {
		return Verdict{}, false
	}
	steady, wall := t.clock()
	if !t.on(steady, wall) {
		return Verdict{}, false
	}
	e, ok := t.cache.GetIfPresent(claim.Key)
	if !ok || steady >= e.until || wall >= e.untilWall {
		return Verdict{}, false
	}
	v := Verdict{Local: true, Record: e.Record, At: e.Until.Add(time.Duration(steady - e.until))}
	switch {
	case e.Owner.Same(claim.Owner):
		v.Decision = Done
	case claim.Rerun:
		return Verdict{}, false
	case !e.only && claim.Request.ID != "" && claim.Request.ID != e.Request.ID:
		// Another request may have begun an earlier run, which is its answer.
		return Verdict{}, false
	default:
		v.Decision = Duplicate
	}
	v.Mismatch = mismatch(claim.Fingerprint, e.Fingerprint)
	return v, true
}

// asked is when something is asked of Redis, for what is kept of the answer.
type asked struct {
	steady, wall int64
	changes      uint64
	// heard says that the tier could answer then: else an announcement between
	// the answer of Redis and the next subscription was missed.
	heard bool
}

func (t *tier) ask() asked {
	if t == nil {
		return asked{}
	}
	steady, wall := t.clock()
	// Counted before it looks: an outage that begins between the two is seen.
	q := asked{steady: steady, wall: wall, changes: t.changes.Load()}
	q.heard = t.on(steady, wall)
	return q
}

// keep holds a claim that Redis told of, at now by its clock, in answer to what
// was asked. The window is counted from the question, so that it ends here no
// later than there.
func (t *tier) keep(q asked, r stored, now time.Time) {
	if t == nil || r.State != Completed || r.Until == nil || !r.Until.After(now) || !q.heard {
		return
	}
	left := int64(r.Until.Sub(now))
	t.cache.Set(r.Key, &entry{stored: r, until: q.steady + left, untilWall: q.wall + left})
	// An announcement counts itself before it forgets: either it is seen here or
	// it forgets what was just kept.
	if t.changes.Load() != q.changes {
		t.cache.Invalidate(r.Key)
	}
}

// forget drops what is known of a key.
func (t *tier) forget(key Key) {
	t.changes.Add(1)
	t.cache.Invalidate(key)
}

// off stops answering, until the next proof, and drops everything: what is
// announced from now on is missed.
func (t *tier) off() {
	t.until.Store(0)
	t.changes.Add(1)
	t.cache.InvalidateAll()
}

// proved goes on answering until some time after the moment at which something
// was sent that has been heard since: whatever was announced before that moment
// has been heard as well.
func (t *tier) proved(steady, wall int64) {
	t.untilWall.Store(wall + int64(trustFor))
	t.until.Store(steady + int64(trustFor))
}
