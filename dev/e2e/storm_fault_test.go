package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
)

// fault lets one thing happen and says which.
func (s *storm) fault(t *testing.T, rng *rand.Rand, victims []*victim) string {
	t.Helper()
	v, h := victims[rng.IntN(len(victims))], s.hosts[rng.IntN(len(s.hosts))]
	switch rng.IntN(21) {
	case 0, 1:
		v.cancelled = s.env.CLI(t, "cancel", v.String(), "--reason", "storm").Code == 0 || v.cancelled
		return "cancel of " + v.mark
	case 2:
		v.cancelled = s.env.CLI(t, "cancel", v.String(), "--now").Code == 0 || v.cancelled
		return "cancel --now of " + v.mark
	case 3, 4:
		s.terminate(t, v.ID, v.RunID)
		return "terminate of " + v.mark
	case 5:
		s.terminate(t, v.ID, v.RunID)
		s.terminate(t, run.ChildID(v.ID, v.RunID, "one"), "")
		return "terminate of " + v.mark + " and its stage"
	case 6, 7:
		h.worker.Kill()
		h.stopped = nil
		s.mend(t) // a worker needs Temporal, Redis and its disk to be ready
		s.startWorker(t, h)
		return "kill -9 of a worker"
	case 8, 9:
		return fmt.Sprintf("kill -9 of %d supervisors", signalAll(supervisors(t, h.worker.PID()), syscall.SIGKILL))
	case 10:
		s.redis.Stop(t)
		s.redis.Restart(t)
		return "restart of Redis"
	case 11:
		s.env.RestartTemporal(t)
		return "restart of Temporal"
	case 12:
		s.stop(h, nil)
		return "SIGSTOP of a worker"
	case 13:
		s.stop(h, supervisors(t, h.worker.PID()))
		s.twice = true // nobody is there to end its steps
		return fmt.Sprintf("SIGSTOP of a worker and %d supervisors", len(h.stopped)-1)
	case 14:
		return "a cut between a worker and Temporal" + h.link.sever(t)
	case 15, 16:
		s.late = true // one who cannot say that it holds a lock loses it
		return "a cut between a worker and Redis" + h.redis.sever(t)
	case 17, 18:
		return s.fill(t, rng)
	default:
		return s.restartEngine(t, rng)
	}
}

// terminate ends a workflow; it may have ended.
func (s *storm) terminate(t *testing.T, id, runID string) {
	t.Helper()
	_ = s.env.Temporal.Client().TerminateWorkflow(t.Context(), id, runID, "storm")
}

// stop stops a worker, and its supervisors after it, which then start nothing any
// more.
func (s *storm) stop(h *stormHost, supervisors []int) {
	s.late = true // its locks are not renewed
	h.stopped = append(append(h.stopped, h.worker.PID()), supervisors...)
	s.supervisors = append(s.supervisors, supervisors...)
	signalAll(h.stopped, syscall.SIGSTOP)
}

// sever cuts a link that is not cut yet.
func (l *stormLink) sever(t *testing.T) string {
	t.Helper()
	if l.cut {
		return ", which is cut"
	}
	l.cut = true
	require.NoError(t, l.Cut())
	return ""
}

func (l *stormLink) heal(t *testing.T) {
	t.Helper()
	if l.cut {
		require.NoError(t, l.Heal(t.Context()))
		l.cut = false
	}
}

// fill fills a disk, of a host or of the store.
func (s *storm) fill(t *testing.T, rng *rand.Rand) string {
	t.Helper()
	if len(s.disks) == 0 {
		return "no full disk"
	}
	d := s.disks[rng.IntN(len(s.disks))]
	if d.empty == nil {
		d.empty = fill(t, d.dir)
	}
	return "a full disk under " + filepath.Base(d.dir)
}

// restartEngine restarts the container engine, in peace or not.
func (s *storm) restartEngine(t *testing.T, rng *rand.Rand) string {
	t.Helper()
	if s.engine == nil {
		return "no engine to restart"
	}
	signal := []string{"TERM", "KILL"}[rng.IntN(2)]
	s.engine.Restart(t, signal)
	return "restart of the engine by SIG" + signal
}

// stormLease is longer than any lease, and than Temporal waits for a heartbeat.
const stormLease = 35 * time.Second

// mend makes everything work again, what was stopped after its leases are over.
func (s *storm) mend(t *testing.T) {
	t.Helper()
	for _, h := range s.hosts {
		if len(h.stopped) > 0 {
			pause(t, stormLease)
			break
		}
	}
	for _, h := range s.hosts {
		signalAll(h.stopped, syscall.SIGCONT)
		h.stopped = nil
		h.link.heal(t)
		h.redis.heal(t)
	}
	for _, d := range s.disks {
		if d.empty != nil {
			d.empty()
			d.empty = nil
		}
	}
}

// signalAll sends processes a signal and says how many it reached.
func signalAll(pids []int, signal syscall.Signal) int {
	reached := 0
	for _, pid := range pids {
		if syscall.Kill(pid, signal) == nil {
			reached++
		}
	}
	return reached
}

// supervisors are those of a worker's steps.
func supervisors(t *testing.T, worker int) []int {
	t.Helper()
	var pids []int
	for _, pid := range children(t, worker) {
		cmd, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.HasPrefix(string(cmd), "belay-supervisor") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func children(t *testing.T, pid int) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	var pids []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			pids = append(pids, child)
		}
	}
	return pids
}
