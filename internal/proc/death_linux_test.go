package proc

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/testkit/need"
)

// The tests of this file kill workers and supervisors. What they leave becomes
// this process's child, where a test beside them would end it: none is parallel.

func TestAKilledWorkerLeavesNothing(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			o := way.options(t)
			h := newHost(t, o)
			const n = 10
			w := startWorker(t, o, "run/build/step", `trap 'echo cleaned >cleaned; exit' TERM; `+
				daemons(n)+`while :; do sleep 0.01; done`, n)
			pids := append(pidsIn(t, w.dir), w.step, w.supervisor)
			require.Len(t, living(pids), n+2)
			w.kill(t)
			// The daemons ignore SIGTERM: they are killed after the grace of 3 s.
			awaitGone(t, pids)
			require.FileExists(t, filepath.Join(w.dir, "cleaned"), "the grace period is honoured")
			require.Empty(t, recordsOf(t, h))
		})
	}
}

func TestAKilledSupervisorTakesItsStepAlong(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			o := way.options(t)
			h := newHost(t, o)
			const n = 20
			job := script(t, daemons(n)+`exec sleep `+forever)
			other := script(t, `until [ -e go ]; do sleep 0.01; done; exit 4`)
			beside := start(t, h, other)
			p := start(t, h, job)
			awaitOutput(t, job, "ready", n)
			pids := append(pidsIn(t, job.Dir), p.PID())
			require.NoError(t, p.keeper.cmd.Process.Kill())
			r := wait(t, p)
			require.True(t, r.SupervisorLost)
			require.Equal(t, -1, r.ExitCode)
			require.True(t, r.Gone, r.GoneNote)
			require.False(t, r.Terminated)
			require.GreaterOrEqual(t, r.Leftover, n+1)
			require.Equal(t, "the step's supervisor was lost", r.String())
			requireGone(t, pids)

			// The step beside it has not noticed.
			require.NoError(t, os.WriteFile(filepath.Join(other.Dir, "go"), nil, 0o600))
			require.Equal(t, 4, wait(t, beside).ExitCode)
		})
	}
}

func TestAStoppedSupervisorIsWoken(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			o := way.options(t)
			h := newHost(t, o)
			job := script(t, `trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done`)
			job.Grace = time.Minute
			p := start(t, h, job)
			awaitOutput(t, job, "ready", 1)
			sendSignal(t, p.keeper.cmd.Process.Pid, syscall.SIGSTOP)
			p.Terminate()
			r := wait(t, p)
			require.Equal(t, 5, r.ExitCode)
			require.False(t, r.SupervisorLost)
		})
	}
}

// A supervisor in a frozen cgroup cannot be woken, only killed.
func TestASupervisorThatDoesNothingIsDoneWithout(t *testing.T) {
	root := need.Cgroup(t)
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			o := way.options(t)
			h := newHost(t, o)
			job := script(t, daemons(3)+`exec sleep `+forever)
			job.Grace = 50 * time.Millisecond
			p := start(t, h, job)
			awaitOutput(t, job, "ready", 3)
			pids := append(pidsIn(t, job.Dir), p.PID())

			frozen := filepath.Join(root, uniqueName("belay-test-frozen"))
			require.NoError(t, os.Mkdir(frozen, 0o755))
			t.Cleanup(func() { require.NoError(t, os.Remove(frozen)) })
			pid := strconv.Itoa(p.keeper.cmd.Process.Pid)
			require.NoError(t, os.WriteFile(filepath.Join(frozen, "cgroup.procs"), []byte(pid), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(frozen, "cgroup.freeze"), []byte("1"), 0o600))

			p.Terminate()
			r := wait(t, p)
			require.True(t, r.SupervisorLost)
			require.True(t, r.Terminated)
			require.True(t, r.Gone, r.GoneNote)
			requireGone(t, pids)
		})
	}
}

func TestEndNodeEndsWhatADeadWorkerLeft(t *testing.T) {
	node, below := "run/build", "run/build/step"
	t.Run("its supervisor is at it", func(t *testing.T) {
		for _, way := range ways {
			t.Run(way.name, func(t *testing.T) {
				o := way.options(t)
				h := newHost(t, o)
				w := startWorker(t, o, below, `trap 'sleep 0.3; echo cleaned >cleaned; exit' TERM; echo ready; while :; do sleep 0.01; done`, 1)
				w.kill(t)
				require.NoError(t, h.EndNode(t.Context(), node))
				require.False(t, lives(w.step))
				require.FileExists(t, filepath.Join(w.dir, "cleaned"))
			})
		}
	})
	t.Run("its supervisor was stopped", func(t *testing.T) {
		for _, way := range ways {
			t.Run(way.name, func(t *testing.T) {
				o := way.options(t)
				h := newHost(t, o)
				w := startWorker(t, o, below, `echo ready; exec sleep `+forever, 1)
				sendSignal(t, w.supervisor, syscall.SIGSTOP)
				w.kill(t)
				require.True(t, lives(w.step))
				require.NoError(t, h.EndNode(t.Context(), node))
				require.False(t, lives(w.step))
			})
		}
	})
	t.Run("its supervisor was killed too", func(t *testing.T) {
		for _, way := range ways {
			t.Run(way.name, func(t *testing.T) {
				o := way.options(t)
				h := newHost(t, o)
				w := startWorker(t, o, below, `(setsid sh -c 'echo $$ >>pids; echo ready; exec sleep `+forever+`' &); `+
					`env -i sleep `+forever+` & echo $! >>pids; echo ready; wait`, 2)
				pids := append(pidsIn(t, w.dir), w.step)
				killBoth(t, w)
				require.Len(t, living(pids), len(pids))
				require.NoError(t, h.EndNode(t.Context(), "run/build/ste"), "another node")
				require.Len(t, living(pids), len(pids))

				err := h.EndNode(t.Context(), node)
				if o.NoCgroup {
					require.ErrorIs(t, err, ErrNotProved)
					require.NoError(t, h.EndNode(t.Context(), node), "it is said once")
					awaitGone(t, pids) // killed, but not seen to die: that is what could not be proved
					return
				}
				require.NoError(t, err)
				requireGone(t, pids)
			})
		}
	})
}

// killBoth kills the supervisor and the worker of a step in such a way that the
// worker has no time to do anything about it.
func killBoth(t *testing.T, w *worker) {
	t.Helper()
	sendSignal(t, w.cmd.Process.Pid, syscall.SIGSTOP)
	sendSignal(t, w.supervisor, syscall.SIGKILL)
	w.kill(t)
	require.Eventually(t, func() bool { return !lives(w.supervisor) }, patience, tick)
}

func TestEndNodeEndsRunningStepsBelowItOnly(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			o := way.options(t)
			h := newHost(t, o)
			steps := map[string]*Process{}
			for _, node := range []string{"run/build/compile", "run/build/compile2", "run/build/compile/child", "run2/build/compile"} {
				job := script(t, `exec sleep `+forever)
				job.Node = node
				steps[node] = start(t, h, job)
			}
			require.NoError(t, h.EndNode(t.Context(), "run/build/compile"))
			for node, p := range steps {
				select {
				case <-p.done:
					require.True(t, within(node, "run/build/compile"), node)
				default:
					require.False(t, within(node, "run/build/compile"), node)
				}
			}
			require.Error(t, h.EndNode(t.Context(), ""), "no node is not every node")
			for _, p := range steps {
				p.Kill()
				wait(t, p)
			}
		})
	}
}

func TestEndNodeStopsWaitingWithItsContext(t *testing.T) {
	h := newHost(t, Options{NoCgroup: true})
	job := script(t, ignoreTerm)
	job.Grace = time.Hour
	p := start(t, h, job)
	awaitOutput(t, job, "ready", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, h.EndNode(ctx, job.Node), context.DeadlineExceeded)
	p.Kill()
	wait(t, p)
}

func TestCloseEndsWhatRuns(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			o := way.options(t)
			h := newHost(t, o)
			job := script(t, daemons(3)+`exec sleep `+forever)
			job.Grace = time.Hour
			start(t, h, job)
			awaitOutput(t, job, "ready", 3)
			require.NoError(t, h.Close())
			requireGone(t, pidsIn(t, job.Dir))
		})
	}
}
