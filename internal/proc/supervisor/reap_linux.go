package supervisor

import (
	"errors"
	"sync"
	"syscall"
	"time"
)

// reaper waits for all children of the supervisor: the step, and every orphan
// of the step. Nothing else in this process waits, and nothing forks once it
// runs.
type reaper struct {
	main int
	// alone is sent one value when the main process has ended and others are left.
	alone chan struct{}
	// empty is closed when there is no child any more. As the supervisor is
	// the sub-reaper of the step, this proves that nothing of it lives.
	empty chan struct{}

	mu     sync.Mutex // held while children are reaped, and by who signals them
	status syscall.WaitStatus
	ended  bool // the main process has been reaped
	user   time.Duration
	system time.Duration
	maxRSS int64
}

func newReaper(main int) *reaper {
	return &reaper{main: main, alone: make(chan struct{}, 1), empty: make(chan struct{})}
}

// run reaps until there is no child left. It never waits for anybody else:
// zombies would fill the table of processes.
func (r *reaper) run() {
	defer close(r.empty)
	told := false
	for {
		awaitChild()
		if left := r.reapAll(); !left {
			return
		}
		if r.mainEnded() && !told {
			told = true
			r.alone <- struct{}{}
		}
	}
}

// reapAll reaps what has ended and says whether children are left.
func (r *reaper) reapAll() bool {
	for {
		r.mu.Lock()
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|wall, &usage)
		if pid > 0 {
			r.note(pid, status, &usage)
		}
		r.mu.Unlock()
		switch {
		case errors.Is(err, syscall.ECHILD):
			return false
		case pid == 0:
			return true
		}
	}
}

// note keeps what is known of a child that was reaped. Its usage holds that of
// the children it waited for itself.
func (r *reaper) note(pid int, status syscall.WaitStatus, usage *syscall.Rusage) {
	r.user += time.Duration(usage.Utime.Nano())
	r.system += time.Duration(usage.Stime.Nano())
	r.maxRSS = max(r.maxRSS, int64(usage.Maxrss)<<10) //nolint:unconvert // it has 32 bits elsewhere
	if pid == r.main && !r.ended {
		r.status, r.ended = status, true
	}
}

// mainEnded says whether the main process has been reaped.
func (r *reaper) mainEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}
