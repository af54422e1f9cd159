package proc

import (
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/testkit/need"
)

func TestTheCodeOfATrapIsTheSteps(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			job := script(t, `trap 'echo cleaning; exit 5' TERM; echo ready; while :; do sleep 0.01; done`)
			job.Grace = time.Minute
			p := start(t, h, job)
			awaitOutput(t, job, "ready", 1)
			p.Terminate()
			r := wait(t, p)
			require.Equal(t, 5, r.ExitCode)
			require.True(t, r.Terminated)
			require.True(t, r.Gone)
			require.Contains(t, outputOf(job), "cleaning\n", "what it says when it ends is kept")
		})
	}
}

func TestASilentStepEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			job := script(t, `exec sleep `+forever)
			job.Grace = time.Hour
			p := start(t, h, job)
			p.Terminate()
			r := wait(t, p)
			require.Equal(t, "SIGTERM", r.Signal)
			require.True(t, r.Terminated)
		})
	}
}

func TestWhoIgnoresSIGTERMIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			job := script(t, ignoreTerm)
			job.Grace = 200 * time.Millisecond
			p := start(t, h, job)
			awaitOutput(t, job, "ready", 1)
			p.Terminate()
			r := wait(t, p)
			require.Equal(t, "SIGKILL", r.Signal)
			require.True(t, r.Terminated)
			require.True(t, r.Gone)
			requireGone(t, pidsIn(t, job.Dir))
		})
	}
}

func TestKillCutsTheGraceShort(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			job := script(t, ignoreTerm)
			job.Grace = time.Hour
			p := start(t, h, job)
			awaitOutput(t, job, "ready", 1)
			p.Terminate()
			p.Terminate()
			p.Kill()
			r := wait(t, p)
			require.Equal(t, "SIGKILL", r.Signal)
			require.True(t, r.Terminated)
			p.Terminate() // an ended step is left alone
			p.Kill()
			p.KeepAlive()
		})
	}
}

// Daemons left their parents, their session and their environment behind, and
// ignore SIGTERM.
func TestDaemonsAreEnded(t *testing.T) {
	t.Parallel()
	const n = 20
	t.Run("when the step is cancelled", func(t *testing.T) {
		t.Parallel()
		for _, way := range ways {
			t.Run(way.name, func(t *testing.T) {
				t.Parallel()
				h := newHost(t, way.options(t))
				job := script(t, daemons(n)+`exec sleep `+forever)
				job.Grace = 50 * time.Millisecond
				p := start(t, h, job)
				awaitOutput(t, job, "ready", n)
				p.Terminate()
				r := wait(t, p)
				require.True(t, r.Gone)
				require.Equal(t, n, r.Leftover)
				requireGone(t, pidsIn(t, job.Dir))
			})
		}
	})
	t.Run("when the step ends by itself", func(t *testing.T) {
		t.Parallel()
		for _, way := range ways {
			t.Run(way.name, func(t *testing.T) {
				t.Parallel()
				h := newHost(t, way.options(t))
				job := script(t, daemons(n)+`until [ "$(wc -l <pids)" = `+strconv.Itoa(n)+` ]; do sleep 0.01; done; exit 7`)
				r := run(t, h, job)
				require.Equal(t, 7, r.ExitCode)
				require.Equal(t, n, r.Leftover)
				require.False(t, r.Terminated)
				requireGone(t, pidsIn(t, job.Dir))
			})
		}
	})
}

// The classic: a child in the background holds the output open for ever.
func TestABackgroundChildDoesNotHoldTheStep(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			r := run(t, h, script(t, `sleep `+forever+` & echo $! >pids; echo done; exit 7`))
			require.Equal(t, 7, r.ExitCode)
			require.Equal(t, 1, r.Leftover)
		})
	}
}

func TestSIGTERMReachesTheWholeTree(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			// One in the group, one in a session of its own, one that is stopped;
			// the main process ends at once, the others clean up for a while.
			child := `trap 'sleep 0.2; echo cleaned; exit' TERM; echo ready; while :; do sleep 0.01; done`
			job := script(t, `sh -c "$CHILD" & setsid sh -c "$CHILD" & sh -c 'echo $$ >pids; exec sh -c "$CHILD"' & exec sleep `+forever)
			job.Env = append(job.Env, "CHILD="+child)
			job.Grace = time.Minute
			p := start(t, h, job)
			awaitOutput(t, job, "ready", 3)
			sendSignal(t, pidsIn(t, job.Dir)[0], 19)
			p.Terminate()
			r := wait(t, p)
			require.Equal(t, "SIGTERM", r.Signal)
			require.Zero(t, r.Leftover)
			require.Equal(t, "ready\nready\nready\ncleaned\ncleaned\ncleaned\n", outputOf(job))
		})
	}
}

func TestDeadManEndsAStepThatNobodyKeepsAlive(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			job := script(t, ignoreTerm)
			job.DeadMan, job.Grace = 100*time.Millisecond, 50*time.Millisecond
			r := run(t, h, job)
			require.True(t, r.DeadMan)
			require.True(t, r.Terminated)
			require.Equal(t, "SIGKILL", r.Signal)
		})
	}
}

func TestKeepAliveKeepsAStepAlive(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	job := script(t, `sleep 4; exit 3`)
	job.DeadMan = 2 * time.Second
	p := start(t, h, job)
	alive := time.NewTicker(20 * time.Millisecond)
	defer alive.Stop()
	for running := true; running; {
		select {
		case <-alive.C:
			p.KeepAlive()
		case <-p.done:
			running = false
		}
	}
	r := wait(t, p)
	require.False(t, r.DeadMan)
	require.Equal(t, 3, r.ExitCode)
}

func TestManyWaitAndEndAtOnce(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			job := script(t, ignoreTerm)
			job.Grace = 50 * time.Millisecond
			p := start(t, h, job)
			awaitOutput(t, job, "ready", 1)
			var all sync.WaitGroup
			for range 8 {
				all.Go(p.Terminate)
				all.Go(p.KeepAlive)
				all.Go(func() {
					r, err := p.Wait()
					if err != nil || r.Signal != "SIGKILL" {
						t.Errorf("%+v, %v", r, err)
					}
				})
			}
			all.Wait()
		})
	}
}

func TestManyStepsAtOnce(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			var all sync.WaitGroup
			for i := range 40 {
				job := script(t, `sleep `+forever+` & exit `+strconv.Itoa(i))
				all.Go(func() {
					p, err := h.Start(t.Context(), job)
					if err != nil {
						t.Error(err)
						return
					}
					r, err := p.Wait()
					if err != nil || r.ExitCode != i || r.Leftover != 1 || !r.Gone {
						t.Errorf("step %d: %+v, %v", i, r, err)
					}
				})
			}
			all.Wait()
		})
	}
}

// A step may make cgroups of its own in its cgroup.
func TestCgroupsInsideOfAStepAreRemoved(t *testing.T) {
	t.Parallel()
	need.Cgroup(t)
	h := newHost(t, Options{})
	job := script(t, `own=$(echo "$CGROUP"/*step*); mkdir -p "$own/a/b"; sleep `+forever+` & echo $! | tee pids >"$own/a/b/cgroup.procs"; echo ok`)
	job.Env = append(job.Env, "CGROUP="+string(h.cgroups))
	r := run(t, h, job)
	require.Equal(t, "ok\n", outputOf(job), job.Stderr)
	require.Equal(t, 1, r.Leftover)
	requireGone(t, pidsIn(t, job.Dir))
	left, err := filepath.Glob(string(h.cgroups) + "/*step*")
	require.NoError(t, err)
	require.Empty(t, left)
}
