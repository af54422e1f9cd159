package host

import (
	"slices"
	"strings"
	"sync"
	"time"

	"belay.run/internal/config"
)

// Status is where a worker stands in its life.
type Status string

// The states of a worker, in their order.
const (
	StatusStarting Status = "starting"
	StatusReady    Status = "ready"
	// StatusWaiting is that of a worker which was ready, while a service that it
	// needs does not answer.
	StatusWaiting  Status = "waiting"
	StatusDraining Status = "draining"
	StatusStopped  Status = "stopped"
)

// Health is what /readyz answers.
type Health struct {
	// Status is "ready" where the worker takes stages.
	Status Status `json:"status"`
	// Host is the id of the host, Queue its task queue.
	Host  string `json:"host"`
	Queue string `json:"queue"`
	// Ready lists the services that answer, WaitingFor those that do not.
	Ready      []string  `json:"ready"`
	WaitingFor []Waiting `json:"waiting_for"`
	// Stages is how many stages are bound to this host.
	Stages int `json:"stages"`
}

// Waiting is a service that does not answer.
type Waiting struct {
	Service string    `json:"service"`
	Address string    `json:"address"`
	Since   time.Time `json:"since"`
	Error   string    `json:"error"`
	Check   string    `json:"check"`
}

// readiness collects what the parts of a worker know about its health.
type readiness struct {
	mu     sync.Mutex
	status Status
	ready  []string
	waits  []Waiting
}

func (r *readiness) set(s Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = s
}

func (r *readiness) is(s Status) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status == s
}

// answers notes that a service answers. It reports whether that is news.
func (r *readiness) answers(service string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(service)
	known := slices.Contains(r.ready, service)
	if !known {
		r.ready = append(r.ready, service)
		slices.Sort(r.ready)
	}
	return !known
}

// silent notes that a service does not answer. It reports whether that is news.
func (r *readiness) silent(err *config.UnreachableError) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := Waiting{Service: err.Service, Address: err.Address, Since: time.Now().UTC(), Error: err.Err.Error(), Check: err.Check}
	old := r.drop(err.Service)
	if old != nil {
		w.Since = old.Since
	}
	r.ready = slices.DeleteFunc(r.ready, func(s string) bool { return s == err.Service })
	r.waits = append(r.waits, w)
	slices.SortFunc(r.waits, func(a, b Waiting) int { return strings.Compare(a.Service, b.Service) })
	return old == nil || old.Error != w.Error
}

func (r *readiness) drop(service string) *Waiting {
	i := slices.IndexFunc(r.waits, func(w Waiting) bool { return w.Service == service })
	if i < 0 {
		return nil
	}
	w := r.waits[i]
	r.waits = slices.Delete(r.waits, i, i+1)
	return &w
}

// health is a copy of what is known.
func (r *readiness) health() Health {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.status
	if status == StatusReady && len(r.waits) > 0 {
		status = StatusWaiting
	}
	return Health{
		Status:     status,
		Ready:      append([]string{}, r.ready...),
		WaitingFor: append([]Waiting{}, r.waits...),
	}
}
