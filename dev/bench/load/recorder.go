package load

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// recorder counts tasks, and takes how long those took that end while it counts.
type recorder struct {
	mu        sync.Mutex
	counting  bool
	now, most int
	ended     int
	took      []time.Duration
	errors    int
	noFiles   int
	first     error
}

// run has a task run whose time counts from at.
func (r *recorder) run(ctx context.Context, at time.Time, run runs) {
	r.mu.Lock()
	r.now++
	r.most = max(r.most, r.now)
	r.mu.Unlock()
	err := run(ctx)
	took := time.Since(at)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now--
	r.ended++
	if !r.counting {
		return
	}
	r.took = append(r.took, took)
	if err == nil {
		return
	}
	r.errors++
	if strings.Contains(err.Error(), syscall.EMFILE.Error()) {
		r.noFiles++
	}
	if r.first == nil {
		r.first = err
	}
}

// seen is how many tasks have ended, since ever.
func (r *recorder) seen() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

func (r *recorder) inFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// begin begins to count.
func (r *recorder) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counting, r.most = true, r.now
}

// end ends counting, and says what was counted in so long a time.
func (r *recorder) end(counted time.Duration) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counting = false
	slices.Sort(r.took)
	at := func(q float64) float64 {
		if len(r.took) == 0 {
			return 0
		}
		return float64(r.took[int(q*float64(len(r.took)-1))]) / float64(time.Millisecond)
	}
	res := Result{
		Ended: len(r.took), QPS: float64(len(r.took)-r.errors) / counted.Seconds(),
		P50: at(0.5), P99: at(0.99), P999: at(0.999),
		Errors: r.errors, NoFiles: r.noFiles, Most: r.most,
	}
	if r.first != nil {
		res.Error = r.first.Error()
	}
	return res
}
