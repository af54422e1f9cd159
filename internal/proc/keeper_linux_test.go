package proc

import (
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNextStepGetsTheSameSupervisor(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, way.options(t))
			pids := map[int]bool{}
			for i := range 5 {
				job := script(t, daemons(2)+`until [ -s pids ] && [ $(wc -l <pids) = 2 ]; do sleep 0.01; done; echo "$0 $ONE" >&2; exit $ONE`)
				job.Env = append(job.Env, "ONE="+strconv.Itoa(i))
				p := start(t, h, job)
				pids[p.keeper.pid()] = true
				r := wait(t, p)
				require.True(t, r.Gone, r.GoneNote)
				require.Equal(t, i, r.ExitCode)
				require.Equal(t, 2, r.Leftover)
				requireGone(t, pidsIn(t, job.Dir))
			}
			require.Len(t, pids, 1)
		})
	}
}

// What a step sees of its process must not depend on what ran before it.
func TestNothingOfAStepReachesTheNext(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	look := `ls /proc/self/fd | wc -l; grep -E '^(SigIgn|SigBlk|Threads)' /proc/self/status; env | sort | grep -v '^PWD='`
	var seen []string
	for i := range 3 {
		job := script(t, look)
		job.Dir = os.TempDir()
		if i == 1 { // with no output of its own, and another environment
			job.Env, job.Stdout, job.Stderr = []string{"PATH=" + os.Getenv("PATH"), "SECRET=1"}, nil, nil
		}
		require.Equal(t, 0, run(t, h, job).ExitCode)
		if i != 1 {
			seen = append(seen, outputOf(job))
		}
	}
	require.Equal(t, seen[0], seen[1])
	require.NotContains(t, seen[0], "SECRET")
}

func TestASupervisorThatWasKilledIdleIsReplaced(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	p := start(t, h, script(t, `true`))
	wait(t, p)
	sendSignal(t, p.keeper.pid(), syscall.SIGKILL)
	awaitGone(t, []int{p.keeper.pid()})
	q := start(t, h, script(t, `exit 3`))
	require.Equal(t, 3, wait(t, q).ExitCode)
	require.NotEqual(t, p.keeper.pid(), q.keeper.pid())
}

func TestASupervisorThatWasStoppedIdleIsReplaced(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	p := start(t, h, script(t, `true`))
	wait(t, p)
	sendSignal(t, p.keeper.pid(), syscall.SIGSTOP)
	require.Equal(t, 3, run(t, h, script(t, `exit 3`)).ExitCode)
	awaitGone(t, []int{p.keeper.pid()})
}

func TestASupervisorThatTermReachesIdleServesOn(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	p := start(t, h, script(t, `true`))
	wait(t, p)
	sendSignal(t, p.keeper.pid(), syscall.SIGTERM)
	job := script(t, `trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done`)
	job.Grace = patience
	q := start(t, h, job)
	awaitOutput(t, job, "ready", 1)
	q.Terminate()
	require.Equal(t, 5, wait(t, q).ExitCode)
}

func TestIdleSupervisorsAreFewAndEndWithTheHost(t *testing.T) {
	t.Parallel()
	h, err := New(Options{StateDir: t.TempDir(), NoCgroup: true})
	require.NoError(t, err)
	var pids []int
	var running []*Process
	for range 3 * maxIdle { // all at once
		p := start(t, h, script(t, `exec sleep `+forever))
		running, pids = append(running, p), append(pids, p.keeper.pid())
	}
	var wg sync.WaitGroup
	for _, p := range running {
		wg.Go(func() { p.Kill(); _, _ = p.Wait() })
	}
	wg.Wait()
	require.Eventually(t, func() bool { return len(living(pids)) <= maxIdle }, patience, tick)
	require.Len(t, h.supervisors(), len(living(pids)))
	require.NoError(t, h.Close())
	requireGone(t, pids)
}

// A worker that ends without closing its host, as when it is killed, takes the
// idle ones along.
func TestIdleSupervisorsEndWithTheWorker(t *testing.T) {
	t.Parallel()
	w := startWorker(t, Options{StateDir: t.TempDir(), NoCgroup: true}, "run/build/step", `echo ready`, 1)
	awaitGone(t, []int{w.supervisor})
}
