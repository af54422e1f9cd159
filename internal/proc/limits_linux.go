package proc

import (
	"time"

	"belay.run/internal/proc/supervisor/tree"
)

const (
	// The use of a job with limits is looked at again and again, first soon:
	// what forks without end does so at once.
	firstSample = 10 * time.Millisecond
	lastSample  = 200 * time.Millisecond
	// sampleShare is how many times as long as a look the pause after it is.
	sampleShare = 10
)

// watchLimits looks at what the step uses until it has ended or has gone over a
// limit, which is told once.
func (p *Process) watchLimits() {
	wait := firstSample
	for {
		select {
		case <-p.done:
			return
		case <-time.After(wait):
		}
		began := time.Now()
		over := p.job.Limits.over(p.uses())
		if over != nil && p.exceed(*over) {
			if p.job.OnExcess != nil {
				p.job.OnExcess(*over)
			}
			return
		}
		wait = max(min(2*wait, lastSample), sampleShare*time.Since(began))
	}
}

// exceed notes that the step went over a limit. Once it has ended its supervisor
// may have another step, and what was seen may be that one's.
func (p *Process) exceed(e Excess) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.excess = &e
	return true
}

// uses is what the step uses now, as far as it is limited and the kernel does
// not see to it.
func (p *Process) uses() uses {
	l, u := p.job.Limits, uses{}
	var pids []int
	if p.cgroup != "" {
		pids = p.cgroup.Processes()
		user, system := p.cgroup.CPU()
		u.cpu = user + system
	} else {
		pids = tree.Descendants(p.keeper.pid())
		u.cpu = p.waited() - p.waitedBefore
	}
	for _, pid := range pids {
		use, err := tree.ReadUsage(pid)
		if err != nil {
			continue // it has ended
		}
		u.pids += use.Threads
		u.memory += use.Resident
		if p.cgroup == "" {
			u.cpu += use.CPU + use.Waited
		}
	}
	switch {
	case p.kept.memory:
		u.memory = 0
	case l.Memory > 0 && u.memory > l.Memory:
		u.memory = proportional(pids)
	}
	if p.kept.pids && p.cgroup != "" && refusedForks(p.cgroup) {
		u.pids = max(u.pids, l.PIDs+1)
	}
	return u
}

// proportional is the memory of processes, what they share counted once.
func proportional(pids []int) (total int64) {
	for _, pid := range pids {
		n, err := tree.Proportional(pid)
		if err != nil { // another user's, or it has ended
			use, _ := tree.ReadUsage(pid) // nothing, if it has ended
			n = use.Resident
		}
		total += n
	}
	return total
}

// waited is the time of what the supervisor has waited for, also for the steps
// that it had before.
func (p *Process) waited() time.Duration {
	use, err := tree.ReadUsage(p.keeper.pid())
	if err != nil {
		return p.waitedBefore // it is dead, which is noticed elsewhere
	}
	return use.Waited
}

// excessOf is the limit that a step turned out to have gone over: one that was
// seen, that it was killed for by the kernel, or that its figures show.
func (p *Process) excessOf(r Result) *Excess {
	p.mu.Lock()
	seen := p.excess
	p.mu.Unlock()
	l := p.job.Limits
	switch {
	case seen != nil:
		return seen
	case p.kept.memory && r.Signal == "SIGKILL" && !r.Terminated && r.MaxRSS >= l.Memory-l.Memory/100:
		return &Excess{LimitedMemory, l.Memory, r.MaxRSS}
	}
	if p.kept.memory { // the peak counts what the kernel would give back
		l.Memory = 0
	}
	return l.after(r)
}
