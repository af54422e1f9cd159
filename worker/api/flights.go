package api

import "sync"

// flights counts what is under way, until it is closed and nothing is.
type flights struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{}
}

// enter counts one more, unless it is closed.
func (f *flights) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.n++
	return true
}

func (f *flights) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	f.settle()
}

func (f *flights) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.settle()
}

// idle is closed when it is closed and nothing is under way.
func (f *flights) idle() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.emptied()
}

func (f *flights) emptied() chan struct{} {
	if f.empty == nil {
		f.empty = make(chan struct{})
	}
	return f.empty
}

func (f *flights) settle() {
	if !f.closed || f.n > 0 {
		return
	}
	select {
	case <-f.emptied():
	default:
		close(f.empty)
	}
}
