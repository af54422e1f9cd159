package supervisor

import (
	"os"
	"syscall"

	"belay.run/internal/proc/supervisor/tree"
)

// signalAll sends signals to the whole tree: first to the step's process group,
// which the kernel does at once, then to each that left the group.
func (s *supervisor) signalAll(signals ...syscall.Signal) {
	members := s.members()
	ours := s.belongs(members)
	for _, sig := range signals {
		group := s.signalGroup(sig)
		for _, pid := range members {
			_ = tree.SignalIf(pid, sig, func(st tree.Stat) bool { // it may have ended
				return st.PGID != group && ours(st)
			})
		}
	}
}

// signalGroup signals the step's process group and returns its number, 0 when
// the main process is gone and the number may mean another group.
func (s *supervisor) signalGroup(sig syscall.Signal) int {
	r := s.reaper
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || syscall.Kill(-r.main, sig) != nil {
		return 0
	}
	return r.main
}

// killChildren ends the children of the supervisor, and all below them. While
// the reaper is held, the pid of a child cannot come to mean another process.
func (s *supervisor) killChildren() {
	self := os.Getpid()
	s.reaper.mu.Lock()
	children := tree.Children(self)
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be a zombie
	}
	s.reaper.mu.Unlock()
	if s.job.Cgroup != "" {
		return // the cgroup ends those below
	}
	below := tree.Descendants(self)
	ours := s.belongs(below)
	for _, pid := range below {
		_ = tree.SignalIf(pid, syscall.SIGKILL, ours) // it may have ended
	}
}

// members lists the processes of the step.
func (s *supervisor) members() []int {
	if s.job.Cgroup != "" {
		return tree.Cgroup(s.job.Cgroup).Processes()
	}
	return tree.Descendants(os.Getpid())
}

// belongs returns a test whether a process, of which a handle is held, is still
// one of the members rather than another that got its pid.
func (s *supervisor) belongs(members []int) func(tree.Stat) bool {
	if s.job.Cgroup != "" {
		return func(st tree.Stat) bool { return tree.Cgroup(s.job.Cgroup).Contains(st.PID) }
	}
	parents := map[int]bool{os.Getpid(): true}
	for _, pid := range members {
		parents[pid] = true
	}
	return func(st tree.Stat) bool { return parents[st.PPID] }
}

// living counts the processes of the step that have not ended.
func (s *supervisor) living() int {
	n := 0
	for _, pid := range s.members() {
		if st, err := tree.ReadStat(pid); err == nil && !st.Dead() {
			n++
		}
	}
	return n
}
