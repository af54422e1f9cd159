package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"belay.run/internal/proc/supervisor"
	"belay.run/internal/proc/supervisor/tree"
)

const (
	// takeOverBound is how long the worker tries to end a step itself.
	takeOverBound = 5 * time.Second
	// The tree is looked at again and again meanwhile, first soon.
	firstLook = 2 * time.Millisecond
	lastLook  = 20 * time.Millisecond
	// reapEvery is how often, at most, zombies are sought that came from
	// elsewhere than from steps.
	reapEvery = time.Second
)

// ending is what came of ending a step without its supervisor.
type ending struct {
	gone   bool
	note   string
	killed int
	cpu    time.Duration
	memory int64
}

// takeOver ends a step whose supervisor is dead. Its processes are in its
// cgroup; without one they have become orphans of this process.
func (p *Process) takeOver() ending {
	var end ending
	if p.cgroup != "" {
		end = endCgroup(p.cgroup, takeOverBound)
		p.host.forking.Lock()
		p.host.reap(p.host.orphans())
		p.host.forking.Unlock()
	} else {
		end = p.host.endOrphans(takeOverBound)
	}
	if end.gone {
		p.clear()
	}
	return end
}

// endCgroup kills what is in a cgroup and waits until it is empty.
func endCgroup(c tree.Cgroup, bound time.Duration) ending {
	end := ending{killed: len(c.Processes())}
	look := firstLook
	for deadline := time.Now().Add(bound); ; look = min(2*look, lastLook) {
		err := c.Kill()
		if c.WaitEmpty(max(look, 0)) {
			end.gone = true
			break
		}
		if time.Now().After(deadline) {
			end.note = fmt.Sprintf("%d processes in the cgroup %s did not end within %v of SIGKILL", len(c.Processes()), c, bound)
			if err != nil {
				end.note += ": " + err.Error()
			}
			break
		}
	}
	user, system := c.CPU()
	end.cpu, end.memory = user+system, c.PeakMemory()
	return end
}

// endOrphans kills the orphans that this process got and all below them, until
// there are none. As every process of a step whose supervisor died comes to
// this one, that proves the step gone.
func (h *Host) endOrphans(bound time.Duration) ending {
	var end ending
	seen := map[int]bool{}
	look := firstLook
	for deadline := time.Now().Add(bound); ; look = min(2*look, lastLook) {
		living := h.killOrphans(seen)
		end.killed = len(seen)
		if living == 0 {
			end.gone = true
			return end
		}
		if time.Now().After(deadline) {
			end.note = fmt.Sprintf("%d orphans of steps did not end within %v of SIGKILL", living, bound)
			return end
		}
		time.Sleep(look) // the kernel tells nobody that an orphan changed parents
	}
}

// killOrphans kills the orphans there are now, reaps those that are dead, and
// says how many are left of them.
func (h *Host) killOrphans(seen map[int]bool) int {
	h.forking.Lock()
	defer h.forking.Unlock()
	orphans := h.orphans()
	for _, o := range orphans {
		if o.Dead() {
			continue
		}
		// A child that was not reaped keeps its pid.
		_ = unix.Kill(o.PID, unix.SIGKILL)
		seen[o.PID] = true
		for _, pid := range tree.Descendants(o.PID) {
			parent := o.PID
			_ = tree.SignalIf(pid, unix.SIGKILL, func(s tree.Stat) bool { return descends(s, parent) }) // it may have ended
			seen[pid] = true
		}
	}
	return len(orphans) - h.reap(orphans)
}

// descends says whether a process has another among its ancestors.
func descends(s tree.Stat, ancestor int) bool {
	for depth := 0; depth < 10_000 && s.PPID > 1; depth++ {
		if s.PPID == ancestor {
			return true
		}
		var err error
		if s, err = tree.ReadStat(s.PPID); err != nil {
			return false
		}
	}
	return false
}

// orphans lists the children of this process that it did not start: those in
// another session, which steps always are, that are no supervisors. h.forking
// is held.
func (h *Host) orphans() []tree.Stat {
	self, err := tree.ReadStat(os.Getpid())
	if err != nil {
		return nil
	}
	known := h.supervisors()
	var orphans []tree.Stat
	for _, pid := range tree.Children(self.PID) {
		s, err := tree.ReadStat(pid)
		if err == nil && s.PPID == self.PID && s.SID != self.SID && !known[pid] && !isOurs(s, self) {
			orphans = append(orphans, s)
		}
	}
	return orphans
}

// isOurs says whether a child is the supervisor of another host in this process,
// or one that this process is just starting and that still looks like itself.
func isOurs(child, self tree.Stat) bool {
	if child.Comm == supervisor.Comm {
		return true
	}
	if child.Dead() { // the command line is gone; "exe" is how a supervisor begins
		return child.Comm == "exe" || child.Comm == self.Comm
	}
	line := commandLine(child.PID)
	return bytes.HasPrefix(line, []byte(supervisor.Name+"\x00")) || bytes.Equal(line, commandLine(self.PID))
}

func commandLine(pid int) []byte {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil // it has ended
	}
	return line
}

// reap takes the exit status of orphans that are dead, each by its pid: the
// children of os/exec are not touched. It returns how many it took.
func (h *Host) reap(orphans []tree.Stat) int {
	n := 0
	for _, o := range orphans {
		if pid, err := unix.Wait4(o.PID, nil, unix.WNOHANG|unix.WALL, nil); err == nil && pid == o.PID {
			n++
		}
	}
	return n
}

// reapNowAndThen reaps orphans that came from other programs than steps, such
// as a daemon of git, and have ended since.
func (h *Host) reapNowAndThen() {
	h.mu.Lock()
	due := time.Since(h.lastReap) >= reapEvery
	if due {
		h.lastReap = time.Now()
	}
	h.mu.Unlock()
	if !due || !h.forking.TryLock() {
		return
	}
	defer h.forking.Unlock()
	h.reap(h.orphans())
}
