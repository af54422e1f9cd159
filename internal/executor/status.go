package executor

import (
	"slices"
	"time"

	"github.com/sony/gobreaker/v2"
)

// Status is what an executor does now.
type Status struct {
	// Status is running, closing or closed.
	Status string `json:"status"`
	// Executor is its kind: coroutine.
	Executor string `json:"executor"`
	Running  int    `json:"running"`
	// Concurrency is how many may run now: Limit, or fewer where the process has
	// not the files for more, or while it is short of CPU.
	Concurrency int `json:"concurrency"`
	Limit       int `json:"limit"`
	// Waiting are tasks that wait, those of batches included; Queue is how many
	// that were submitted one by one may.
	Waiting int `json:"waiting"`
	Queue   int `json:"queue"`
	// Done is how many tasks have ended, Rate how many end in a second.
	Done uint64  `json:"done"`
	Rate float64 `json:"rate"`
	// Delay is how long goroutines that could run wait for a CPU, at the 99th
	// percentile.
	Delay time.Duration `json:"scheduling_delay_ns"`
	// Breakers is how many targets' circuits are in each state.
	Breakers Breakers `json:"breakers"`
	// Open are targets whose circuits are not closed, 100 at most, by name.
	Open []string `json:"open,omitempty"`
}

// Breakers counts circuits by state.
type Breakers struct {
	Closed   int `json:"closed"`
	HalfOpen int `json:"half_open"`
	Open     int `json:"open"`
}

// mostOpen is how many targets a status names.
const mostOpen = 100

// Status returns what the executor does now.
func (e *Executor) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Status{
		Status: "running", Executor: "coroutine",
		Running: len(e.running), Concurrency: e.cap, Limit: e.limits.Concurrency,
		Waiting: e.waiting, Queue: e.limits.Queue,
		Done: e.done, Rate: e.rate, Delay: e.delay,
	}
	switch {
	case e.closing && e.held == 0:
		s.Status = "closed"
	case e.closing:
		s.Status = "closing"
	}
	for name, g := range e.targets.known {
		if g.breaker == nil {
			continue
		}
		switch g.breaker.State() {
		case gobreaker.StateClosed:
			s.Breakers.Closed++
			continue
		case gobreaker.StateHalfOpen:
			s.Breakers.HalfOpen++
		case gobreaker.StateOpen:
			s.Breakers.Open++
		}
		s.Open = append(s.Open, name)
	}
	slices.Sort(s.Open)
	s.Open = s.Open[:min(len(s.Open), mostOpen)]
	return s
}
