package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/proc/supervisor/tree"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, w.options(t))

			// passed runs a script until it goes over a limit, and then ends it.
			passed := func(t *testing.T, text string, l Limits) Result {
				t.Helper()
				job := script(t, text)
				over := make(chan Excess, 1)
				job.Limits, job.OnExcess = l, func(e Excess) { over <- e }
				p := start(t, h, job)
				select {
				case e := <-over:
					p.Kill()
					r := wait(t, p)
					require.True(t, r.Gone, r.GoneNote)
					require.Equal(t, &e, r.Excess)
					return r
				case <-time.After(patience):
					p.Kill()
					require.FailNow(t, "the limit was not noticed", "%+v", wait(t, p))
					return Result{}
				}
			}

			t.Run("memory of several processes", func(t *testing.T) {
				t.Parallel()
				r := passed(t, "for i in 1 2; do (head -c 70000000 /dev/zero; sleep 1000) | tail -c 70000000 & done; wait", Limits{Memory: 96 << 20})
				require.Equal(t, LimitedMemory, r.Excess.Of)
				require.Greater(t, r.Excess.Used, int64(96<<20))
			})

			t.Run("processes that left the session", func(t *testing.T) {
				t.Parallel()
				r := passed(t, "for i in 1 2 3 4 5 6; do setsid sleep 1000 & done; wait", Limits{PIDs: 4})
				require.Equal(t, LimitedPIDs, r.Excess.Of)
			})

			t.Run("computing of processes that have ended", func(t *testing.T) {
				t.Parallel()
				r := passed(t, "while :; do (i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done) & wait; done", Limits{CPU: 300 * time.Millisecond})
				require.Equal(t, LimitedCPU, r.Excess.Of)
			})

			t.Run("computing of orphans that have ended", func(t *testing.T) {
				t.Parallel()
				r := passed(t, "while :; do (sh -c 'i=0; while [ $i -lt 9000 ]; do i=$((i+1)); done' &); sleep 0.01; done", Limits{CPU: 300 * time.Millisecond})
				require.Equal(t, LimitedCPU, r.Excess.Of)
			})

			t.Run("computing that shows when it is over", func(t *testing.T) {
				t.Parallel()
				job := script(t, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
				job.Limits = Limits{CPU: time.Millisecond}
				r := run(t, h, job)
				require.NotNil(t, r.Excess)
				require.Equal(t, LimitedCPU, r.Excess.Of)
			})

			t.Run("nothing that keeps to them", func(t *testing.T) {
				t.Parallel()
				job := script(t, "for i in 1 2 3; do sleep 0.1 & done; wait")
				job.Limits, job.OnExcess = Limits{Memory: 1 << 30, PIDs: 4, CPU: time.Minute}, func(e Excess) { t.Error(e) }
				r := run(t, h, job)
				require.Equal(t, 0, r.ExitCode)
				require.Nil(t, r.Excess)
			})
		})
	}
}

// TestSharedMemoryCountsOnce holds that many processes that share their memory
// are not taken to hold it many times.
func TestSharedMemoryCountsOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	job := script(t, "for i in $(seq 60); do sleep 1000 & done; echo ready; wait")
	p := start(t, h, job)
	awaitOutput(t, job, "ready", 1)
	var pids []int
	require.Eventually(t, func() bool { pids = tree.Descendants(p.keeper.pid()); return len(pids) == 61 }, patience, tick)
	var whole int64
	for _, pid := range pids {
		use, err := tree.ReadUsage(pid)
		require.NoError(t, err)
		whole += use.Resident
	}
	shared := proportional(pids)
	require.Positive(t, shared)
	require.Less(t, 2*shared, whole, "programs share most of what they are made of")
	p.Kill()
	wait(t, p)
}

// TestControllers holds what is asked of a kernel that keeps limits, by a
// directory that stands in for one: few test machines have such a kernel.
func TestControllers(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	base := filepath.Join(root, "belay.1")
	step := filepath.Join(base, "step")
	require.NoError(t, os.MkdirAll(step, 0o700))
	file := func(dir, name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	read := func(dir, name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, controllers{}, enableControllers(root, base), "no controllers")
	for _, dir := range []string{root, base} {
		file(dir, "cgroup.controllers", "cpu pids hugetlb\n")
		file(dir, "cgroup.subtree_control", "")
	}
	require.Equal(t, controllers{pids: true}, enableControllers(root, base))
	require.Equal(t, "+pids", read(root, "cgroup.subtree_control"))
	for _, dir := range []string{root, base} {
		file(dir, "cgroup.controllers", "memory pids\n")
	}
	have := enableControllers(root, base)
	require.Equal(t, controllers{memory: true, pids: true}, have)

	limits := Limits{Memory: 1 << 20, PIDs: 7}
	require.Equal(t, controllers{}, have.limit(step, limits), "a kernel that does not have the files")
	for _, name := range []string{"memory.max", "memory.oom.group", "memory.swap.max", "memory.peak", "pids.max"} {
		file(step, name, "")
	}
	require.Equal(t, have, have.limit(step, limits))
	require.Equal(t, "1048576", read(step, "memory.max"))
	require.Equal(t, "1", read(step, "memory.oom.group"))
	require.Equal(t, "0", read(step, "memory.swap.max"))
	require.Equal(t, "8", read(step, "pids.max"))
	require.Equal(t, controllers{}, have.limit(step, Limits{}), "nothing to keep")

	require.False(t, refusedForks(tree.Cgroup(step)))
	file(step, "pids.events", "max 0\n")
	require.False(t, refusedForks(tree.Cgroup(step)))
	file(step, "pids.events", "max 3\n")
	require.True(t, refusedForks(tree.Cgroup(step)))
}

// TestExcessOfWhatTheKernelKilled holds that a step that the kernel ended for its
// memory is told from one that was killed in some other way.
func TestExcessOfWhatTheKernelKilled(t *testing.T) {
	t.Parallel()
	p := &Process{job: Job{Limits: Limits{Memory: 100 << 20}}, kept: controllers{memory: true}}
	killed := Result{Signal: "SIGKILL", MaxRSS: 100 << 20}
	require.Equal(t, &Excess{LimitedMemory, 100 << 20, 100 << 20}, p.excessOf(killed))
	require.Nil(t, p.excessOf(Result{Signal: "SIGKILL", MaxRSS: 50 << 20}), "somebody else killed it")
	require.Nil(t, p.excessOf(Result{Signal: "SIGKILL", MaxRSS: 100 << 20, Terminated: true}), "Belay killed it")
	require.Nil(t, p.excessOf(Result{MaxRSS: 100 << 20}), "a cache fills what it may")
}

func TestBytes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 64 << 20: "64MiB", 3 << 40: "3TiB", 5 << 50: "5120TiB"} {
		require.Equal(t, want, Bytes(n))
	}
	require.True(t, strings.HasPrefix(Excess{LimitedPIDs, 3, 4}.String(), "it had 4"))
}
