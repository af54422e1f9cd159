// Package chaos drills claims with a known truth: workers that are processes of
// their own, each on a network link of its own, are killed, stopped, cut off and
// given wrong clocks while requests arrive twice, late, again and on purpose.
// Who planned the requests knows which of them should run; what did run is
// counted against that.
package chaos

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options say how a drill is held.
type Options struct {
	// RedisAddr is host:port of the Redis in which claims are made.
	RedisAddr string
	// Requests is how many requests are made at least.
	Requests int
	// Workers serve ordinary requests; as many lanes send them. Defaults to 4
	// and 16.
	Workers, Lanes int
	// Victims are the workers that are killed, stopped and cut off. Defaults to
	// 4.
	Victims int
	// Published has the workers decide by the algorithm that is commonly
	// published, to compare.
	Published bool
	// Command starts a worker: this program again, in a way that it calls
	// [Worker].
	Command Command
}

// Result is what became of the requests of a drill.
type Result struct {
	// Requests were made. Blocked of them were duplicates that did not run, Ran
	// were meant and ran.
	Requests, Blocked, Ran int
	// Doubles are duplicates that ran, Lost meant requests that were blocked.
	Doubles, Lost int
	// Refused were not answered, because Redis was away: they count as neither.
	Refused int
	// Fenced are the writes of owners that woke up after a takeover and were
	// refused; Stale those that were not.
	Fenced, Stale int
	// Rounds counts what was played, by name.
	Rounds map[string]int
	// Faults says of the first few mistakes what happened.
	Faults []string
}

// Add adds what became of another drill.
func (r *Result) Add(other *Result) {
	r.Requests += other.Requests
	r.Blocked += other.Blocked
	r.Ran += other.Ran
	r.Doubles += other.Doubles
	r.Lost += other.Lost
	r.Refused += other.Refused
	r.Fenced += other.Fenced
	r.Stale += other.Stale
	r.Faults = append(r.Faults, other.Faults...)
}

// Precision is the part of those blocked that were duplicates, in percent.
func (r *Result) Precision() float64 { return percent(r.Blocked, r.Blocked+r.Lost) }

// Recall is the part of the duplicates that were blocked, in percent.
func (r *Result) Recall() float64 { return percent(r.Blocked, r.Blocked+r.Doubles) }

func percent(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// drill is a drill under way.
type drill struct {
	id      string
	opts    Options
	steady  []*worker
	serial  atomic.Int64
	planned atomic.Int64

	// closed are the runs that have ended, as Temporal would say.
	closed sync.Map

	mu     sync.Mutex
	result Result
}

const maxFaults = 10

// Drill holds a drill and returns what became of it. An error is one of the drill
// itself, not of what it finds.
func Drill(ctx context.Context, opts Options) (_ *Result, err error) {
	d := &drill{id: rand.Text(), opts: opts, result: Result{Rounds: map[string]int{}}}
	d.setDefaults()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.hire(ctx); err != nil {
		return nil, err
	}
	var lanes sync.WaitGroup
	play := func(rounds []round, lane int) {
		lanes.Go(func() {
			if err := d.lane(ctx, rounds, lane); err != nil {
				cancel(err)
			}
		})
	}
	for lane := range d.opts.Lanes {
		play(ordinary(), lane)
	}
	for lane := range d.opts.Victims {
		play(disruptive(), lane)
	}
	lanes.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return &d.result, nil
}

// hire starts the workers that nothing happens to.
func (d *drill) hire(ctx context.Context) error {
	for i := range d.opts.Workers {
		w, err := startWorker(ctx, d.opts, skew(i))
		if err != nil {
			return err
		}
		d.steady = append(d.steady, w)
	}
	return nil
}

func (d *drill) setDefaults() {
	o := &d.opts
	if o.Workers == 0 {
		o.Workers = 4
	}
	if o.Lanes == 0 {
		o.Lanes = 16
	}
	if o.Victims == 0 {
		o.Victims = 4
	}
}

// skew is how wrong the clock of a worker is: an hour and more, either way.
func skew(i int) time.Duration {
	return []time.Duration{0, time.Hour, -time.Hour, 26 * time.Hour}[i%4]
}

func (d *drill) stop() error {
	errs := make([]error, 0, len(d.steady))
	for _, w := range d.steady {
		errs = append(errs, w.stop())
	}
	return errors.Join(errs...)
}

// lane plays rounds one after another until enough requests were made.
func (d *drill) lane(ctx context.Context, rounds []round, lane int) error {
	for turn := lane; d.planned.Load() < int64(d.opts.Requests); turn++ {
		r := rounds[turn%len(rounds)]
		if err := r.play(ctx, d); err != nil && !errors.Is(err, errOver) {
			return fmt.Errorf("round %q: %w", r.name, err)
		}
		d.mu.Lock()
		d.result.Rounds[r.name]++
		d.mu.Unlock()
	}
	return nil
}

// worker picks one of those that nothing happens to.
func (d *drill) worker() *worker {
	return d.steady[int(d.serial.Add(1))%len(d.steady)]
}

// name makes a name that nothing else has, in this drill or another.
func (d *drill) name(of string) string { return fmt.Sprintf("%s-%s-%d", d.id, of, d.serial.Add(1)) }

// close says that a run has ended, as Temporal does.
func (d *drill) close(runKey string) { d.closed.Store(runKey, true) }

// isClosed asks what a claimer asks Temporal before it takes over.
func (d *drill) isClosed(runKey string) bool {
	_, closed := d.closed.Load(runKey)
	return closed
}

// count notes what became of one request that was meant to run, or not.
func (d *drill) count(meant bool, a answer, where string) {
	d.planned.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &d.result
	r.Requests++
	switch {
	case a.refused:
		r.Refused++
	case meant && a.runs():
		r.Ran++
	case meant:
		r.Lost++
		d.fault("%s: a request that was meant got %s, blocked by %+v", where, a.Decision, a.Record)
	case a.runs():
		r.Doubles++
		d.fault("%s: a duplicate ran: %+v", where, a.Record)
	default:
		r.Blocked++
	}
}

// countBurst notes what became of requests of which any one was meant to run.
func (d *drill) countBurst(answers []answer, where string) {
	first := true
	slices.SortFunc(answers, func(a, b answer) int { return rank(a) - rank(b) })
	for _, a := range answers {
		d.count(first, a, where)
		first = first && a.refused
	}
}

// rank puts those that ran first.
func rank(a answer) int {
	switch {
	case a.refused:
		return 2
	case a.runs():
		return 0
	}
	return 1
}

// countWrite notes whether the write of an owner that lost its claim was
// refused.
func (d *drill) countWrite(refused bool, where string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if refused {
		d.result.Fenced++
		return
	}
	d.result.Stale++
	d.fault("%s: an owner wrote after a takeover", where)
}

// fault keeps the first few mistakes. d.mu is held.
func (d *drill) fault(format string, args ...any) {
	if len(d.result.Faults) < maxFaults {
		d.result.Faults = append(d.result.Faults, fmt.Sprintf(format, args...))
	}
}
