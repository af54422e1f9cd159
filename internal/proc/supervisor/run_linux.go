package supervisor

import (
	"errors"
	"syscall"
	"time"

	"belay.run/internal/proc/supervisor/tree"
)

// The tree is looked at again and again while it is being killed, first soon.
const (
	firstLook = 2 * time.Millisecond
	lastLook  = 20 * time.Millisecond
)

// supervisor is the state of one step.
type supervisor struct {
	job    Job
	reaper *reaper
	inbox  <-chan message
	held   []int // the other ends of the step's output

	orphaned   bool // the worker is gone
	terminated bool // told to end before the main process had ended
	deadMan    bool
	killing    bool
	leftover   int

	grace, look, bound, dead <-chan time.Time // nil until they count
	lookAfter                time.Duration
}

// run is the life of a supervisor, job after job; it returns its exit code.
func run() int {
	if err := isolate(); err != nil {
		return fail(err)
	}
	inbox := make(chan message, 16)
	go listen(inbox)
	for m := range inbox {
		switch m.order {
		case workerGone:
			return 0
		case Ask:
			tell(Report{Stage: Waiting})
		case Assign:
			free, err := serve(m, inbox)
			if err != nil {
				return fail(err)
			}
			if !free {
				return 0
			}
		}
	}
	return 0
}

// serve takes one step from its start to its end. It reports whether the
// supervisor may have another.
func serve(m message, inbox <-chan message) (free bool, err error) {
	connect(m.files)
	pid, err := spawn(m.job)
	if err != nil {
		return false, err
	}
	s := &supervisor{job: m.job, reaper: newReaper(pid), inbox: inbox, held: hold(m.job)}
	silence()
	go s.reaper.run()
	tell(Report{Stage: Started, Value: pid})
	s.supervise()
	return s.finish(), nil
}

// fail reports that the step could not be started.
func fail(err error) int {
	errno := syscall.EIO
	_ = errors.As(err, &errno) // else EIO stands for what has no number
	tell(Report{Stage: Failed, Value: int(errno)})
	return 1
}

// tell writes a report. A worker that is dead reads none.
func tell(r Report) {
	_, _ = syscall.Write(ReportFD, r.Encode())
}

// supervise returns when nothing of the step is left, or when what is left
// cannot be ended.
func (s *supervisor) supervise() {
	s.keepAlive()
	for {
		select {
		case <-s.reaper.empty:
			return
		case <-s.reaper.alone:
			if !s.terminated {
				s.kill() // what the step left in the background
			}
		case m := <-s.inbox:
			s.obey(m.order)
		case <-s.dead:
			s.deadMan = !s.reaper.mainEnded()
			s.terminate()
		case <-s.grace:
			s.kill()
		case <-s.look:
			s.killAgain()
		case <-s.bound:
			return
		}
	}
}

func (s *supervisor) obey(order byte) {
	switch order {
	case KeepAlive:
		s.keepAlive()
	case Kill:
		s.terminated = s.terminated || !s.reaper.mainEnded()
		s.kill()
	case Terminate:
		s.terminate()
	case workerGone:
		s.orphaned = true
		for _, fd := range s.held {
			go discard(fd)
		}
		s.terminate()
	}
}

func (s *supervisor) keepAlive() {
	if s.job.DeadMan > 0 {
		s.dead = time.After(s.job.DeadMan)
	}
}

// terminate asks the whole tree to end and begins the grace period. All of the
// tree has that time, also when the main process uses less of it.
func (s *supervisor) terminate() {
	if s.terminated || s.killing {
		return
	}
	s.terminated = !s.reaper.mainEnded()
	s.dead = nil
	// Who was stopped would not notice that it is to end.
	s.signalAll(syscall.SIGTERM, syscall.SIGCONT)
	s.grace = time.After(s.job.Grace)
}

// kill begins to end the tree by SIGKILL.
func (s *supervisor) kill() {
	if s.killing {
		return
	}
	s.killing = true
	s.grace, s.dead = nil, nil
	tell(Report{Stage: Killing})
	s.leftover = s.living()
	if !s.reaper.mainEnded() {
		s.leftover = max(0, s.leftover-1)
	}
	s.bound = time.After(s.job.KillBound)
	s.killAgain()
}

// killAgain ends what has been forked since the last look.
func (s *supervisor) killAgain() {
	if s.job.Cgroup == "" || s.lookAfter > 0 {
		s.killChildren()
	}
	if s.job.Cgroup != "" {
		_ = tree.Cgroup(s.job.Cgroup).Kill() // the children are killed one by one too
	}
	s.lookAfter = min(max(firstLook, 2*s.lookAfter), lastLook)
	s.look = time.After(s.lookAfter)
}

// finish cleans up, reports how the step ended, and says whether this process
// may have another: it proved that nothing of this one is left, and nobody
// will look for it under the name of this one.
func (s *supervisor) finish() (free bool) {
	r := s.reaper
	r.mu.Lock()
	o := Outcome{
		User: r.user, System: r.system, MaxRSS: r.maxRSS,
		Leftover: s.leftover, Terminated: s.terminated, DeadMan: s.deadMan,
	}
	switch {
	case !r.ended:
		o.Code = -1
	case r.status.Signaled():
		o.Code, o.Signal = -1, int(r.status.Signal())
	default:
		o.Code = r.status.ExitStatus()
	}
	r.mu.Unlock()
	o.Survivors = s.living()
	if s.job.Cgroup != "" {
		s.finishCgroup(&o)
	}
	free = o.Survivors == 0 && !s.orphaned
	if o.Survivors == 0 && s.job.Record != "" {
		err := syscall.Unlink(s.job.Record) // who sweeps finds it again, and nothing of the step
		free = free && (err == nil || errors.Is(err, syscall.ENOENT))
	}
	release(s.held)
	tell(Report{Stage: Ended, Value: int(flag(free)), Outcome: o})
	return free
}

// finishCgroup makes sure that the cgroup is empty, takes its figures, which
// know of processes that nobody waited for, and removes it.
func (s *supervisor) finishCgroup(o *Outcome) {
	cg := tree.Cgroup(s.job.Cgroup)
	if empty, err := cg.Empty(); err != nil || !empty {
		_ = cg.Kill() // the wait shows whether it helped
		if !cg.WaitEmpty(time.Second) {
			o.Survivors = max(1, len(cg.Processes()))
			return
		}
	}
	o.Survivors = 0
	user, system := cg.CPU()
	o.User, o.System = max(o.User, user), max(o.System, system)
	if peak := cg.PeakMemory(); peak > 0 {
		o.MaxRSS = peak
	}
	_ = cg.Remove() // one that stays is empty, and removed by the next sweep
}
