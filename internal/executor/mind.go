package executor

import (
	"context"
	"math"
	"runtime/metrics"
	"time"
)

const (
	// tick is how often it is looked after what runs, and glance every how many
	// ticks at the scheduler.
	tick   = 250 * time.Millisecond
	glance = 4
	// settling is how much of a new rate counts at once.
	settling = 0.3
	// Fewer run while goroutines wait for a CPU, down to a floor, and more again
	// when they do not.
	shrink, grow, floor = 0.8, 1.1, 0.1
)

// mind looks after what runs until ctx ends.
func (e *Executor) mind(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			e.measure()
			e.giveUp(func(it *item) bool { return overdue(it, now) })
			if n%glance == 0 {
				e.adapt(e.config.delays())
			}
		}
	}
}

// overdue reports whether a job should have returned by now. One that was told to
// stop has from the moment when that was seen.
func overdue(it *item, now time.Time) bool {
	if it.due.IsZero() {
		return false // its key is being claimed
	}
	if late := now.Add(grace); it.due.After(late) && it.ctx.Err() != nil {
		it.due = late
	}
	return now.After(it.due)
}

// measure takes the rate at which tasks end.
func (e *Executor) measure() {
	e.mu.Lock()
	defer e.mu.Unlock()
	rate := float64(e.done-e.measured) / tick.Seconds()
	e.measured = e.done
	e.rate += settling * (rate - e.rate)
	if e.rate < 1e-3 {
		e.rate = 0
	}
}

// adapt lets fewer tasks run while the process is short of CPU, where they would
// only wait for it, and keep others waiting.
func (e *Executor) adapt(delay time.Duration) {
	e.mu.Lock()
	defer e.unlock()
	e.delay = delay
	switch {
	case e.limits.Delay < 0:
		e.spare = 1
	case delay > e.limits.Delay:
		// From what really runs: a cap that nobody reaches helps nobody.
		busy := float64(min(len(e.running), e.cap)) / float64(e.limits.Concurrency)
		e.spare = max(floor, shrink*min(e.spare, busy))
	case delay < e.limits.Delay/2:
		e.spare = min(1, e.spare*grow)
	}
	e.resize()
	e.start(time.Now())
}

// newDelays returns a function that says how long goroutines that could run have
// waited for a CPU since it was last called, at the 99th percentile.
func newDelays() func() time.Duration {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	var before []uint64
	return func() time.Duration {
		metrics.Read(sample)
		if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
			return 0 // this version of Go does not say
		}
		h := sample[0].Value.Float64Histogram()
		since := make([]uint64, len(h.Counts))
		for i, n := range h.Counts {
			since[i] = n
			if i < len(before) {
				since[i] -= before[i]
			}
		}
		before = append(before[:0], h.Counts...)
		return percentile(since, h.Buckets)
	}
}

// percentile is the 99th of a histogram: the lower bound of the bucket in which it
// is.
func percentile(counts []uint64, bounds []float64) time.Duration {
	var total, seen uint64
	for _, n := range counts {
		total += n
	}
	for i, n := range counts {
		seen += n
		if total > 0 && seen*100 >= total*99 && i < len(bounds) {
			return time.Duration(math.Max(bounds[i], 0) * float64(time.Second))
		}
	}
	return 0
}
