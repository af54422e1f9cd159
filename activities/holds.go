package activities

import (
	"sync"

	"belay.run/internal/run"
	"belay.run/internal/secret"
)

// stageHold is what a stage holds on this host over all its steps: variables that
// each of them gets. It is nowhere but in the memory of the worker, as some are
// secrets: with the worker, it is lost.
type stageHold struct {
	// number is that of the attempt to take it.
	number int
	lent   []map[string]string
	values []secret.Value
	// done is closed when it is given back, lost when another has something of it,
	// for cause.
	done, lost chan struct{}
	losing     sync.Once
	cause      run.Cause
}

func newStageHold(number int) *stageHold {
	return &stageHold{number: number, done: make(chan struct{}), lost: make(chan struct{})}
}

// lose notes why it is lost, once.
func (h *stageHold) lose(cause run.Cause) {
	h.losing.Do(func() {
		h.cause = cause
		close(h.lost)
	})
}

// stageHolds are those of the stages on a host.
type stageHolds struct {
	mu sync.Mutex
	m  map[nodeKey]*stageHold
}

func (s *stageHolds) put(stage nodeKey, h *stageHold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[nodeKey]*stageHold{}
	}
	s.m[stage] = h
}

// of is what a stage holds since the attempt of that number, nil where it holds
// nothing of that any more.
func (s *stageHolds) of(stage nodeKey, number int) *stageHold {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.m[stage]; h != nil && h.number == number {
		return h
	}
	return nil
}

// drop forgets what a stage held since the attempt of that number, or of any where
// that is 0.
func (s *stageHolds) drop(stage nodeKey, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.m[stage]; h != nil && (number == 0 || h.number == number) {
		delete(s.m, stage)
		close(h.done)
	}
}
