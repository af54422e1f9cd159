package proc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"belay.run/internal/proc/supervisor/tree"
	"belay.run/internal/testkit/need"
)

const (
	// patience is how long a test waits for what must happen.
	patience = 30 * time.Second
	// tick is how often it looks.
	tick = 5 * time.Millisecond
	// forever is how long, in a script, what must be ended would run.
	forever = "1000"
	// ignoreTerm is a script for a process that only SIGKILL ends; it writes
	// its pid to the file pids and says ready.
	ignoreTerm = `trap '' TERM; echo $$ >>pids; echo ready; exec sleep ` + forever
)

// way is one of the two ways in which a host runs steps.
type way struct {
	name     string
	noCgroup bool
}

var ways = []way{{name: "cgroup"}, {name: "no cgroup", noCgroup: true}}

// options are those of a host, or a worker, of its own.
func (w way) options(t *testing.T) Options {
	t.Helper()
	if !w.noCgroup {
		need.Cgroup(t)
	}
	return Options{StateDir: t.TempDir(), NoCgroup: w.noCgroup}
}

// newHost makes a host that must have ended everything when the test ends.
func newHost(t *testing.T, o Options) *Host {
	t.Helper()
	if o.StateDir == "" {
		o.StateDir = t.TempDir()
	}
	o.Log = zaptest.NewLogger(t)
	h, err := New(o)
	require.NoError(t, err)
	if !o.NoCgroup {
		require.NotEmpty(t, h.cgroups)
	}
	t.Cleanup(func() {
		require.NoError(t, h.Close())
		require.Empty(t, recordsOf(t, h), "records stay behind")
	})
	return h
}

func recordsOf(t *testing.T, h *Host) []string {
	t.Helper()
	names, err := namesIn(h.records, "")
	require.NoError(t, err)
	return names
}

// script is a job that runs a shell script in a directory of its own.
func script(t *testing.T, text string) Job {
	t.Helper()
	return Job{
		Node: "run/build/step", Argv: []string{"/bin/sh", "-c", text}, Dir: t.TempDir(),
		Env: []string{"PATH=" + os.Getenv("PATH")}, Stdout: &lines{}, Stderr: &lines{},
	}
}

func start(t *testing.T, h *Host, job Job) *Process {
	t.Helper()
	p, err := h.Start(t.Context(), job)
	require.NoError(t, err)
	return p
}

func wait(t *testing.T, p *Process) Result {
	t.Helper()
	r, err := p.Wait()
	require.NoError(t, err)
	return r
}

// run runs a job to its end, which must leave nothing behind.
func run(t *testing.T, h *Host, job Job) Result {
	t.Helper()
	r := wait(t, start(t, h, job))
	require.True(t, r.Gone, r.GoneNote)
	return r
}

// lines is a writer that a test can watch.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// output is what a job has written to its standard output so far.
func outputOf(job Job) string { return fmt.Sprint(job.Stdout) }

// awaitOutput waits until a job has written something n times.
func awaitOutput(t *testing.T, job Job, text string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(outputOf(job), text) >= n }, patience, tick,
		"%q did not come %d times", text, n)
}

// pidsIn reads the pids that a script wrote to the file pids.
func pidsIn(t *testing.T, dir string) []int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pids"))
	require.NoError(t, err)
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

// lives says whether a process has not ended; a zombie has.
func lives(pid int) bool {
	s, err := tree.ReadStat(pid)
	return err == nil && !s.Dead()
}

func living(pids []int) []int {
	var left []int
	for _, pid := range pids {
		if lives(pid) {
			left = append(left, pid)
		}
	}
	return left
}

// requireGone demands that processes are gone now, not soon.
func requireGone(t *testing.T, pids []int) {
	t.Helper()
	require.NotEmpty(t, pids)
	require.Empty(t, living(pids), "processes live on")
}

func awaitGone(t *testing.T, pids []int) {
	t.Helper()
	require.NotEmpty(t, pids)
	require.Eventually(t, func() bool { return len(living(pids)) == 0 }, patience, tick, "processes live on")
}

// daemons is a script that starts n daemons: children of nobody, in sessions of
// their own, with nothing in their environment, which ignore SIGTERM.
func daemons(n int) string {
	return `for i in $(seq ` + strconv.Itoa(n) + `); do (setsid env -i /bin/sh -c '` + strings.ReplaceAll(ignoreTerm, "'", `'\''`) + `' &); done; `
}

// worker is a process of its own that runs one step, and that a test can kill.
type worker struct {
	cmd        *exec.Cmd
	state, dir string
	step       int
	supervisor int
}

// startWorker starts the helper "worker" and waits until its step has said ready
// n times.
func startWorker(t *testing.T, o Options, node, script string, ready int) *worker {
	t.Helper()
	w := &worker{state: o.StateDir, dir: t.TempDir()}
	w.cmd = exec.CommandContext(bounded(t), os.Args[0])
	w.cmd.Env = append(os.Environ(), helperEnv+"=worker", "WORKER_STATE="+o.StateDir, "WORKER_NODE="+node,
		"WORKER_DIR="+w.dir, "WORKER_SCRIPT="+script, "WORKER_NO_CGROUP="+strconv.FormatBool(o.NoCgroup))
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, w.cmd.Start())
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	})
	scanner := bufio.NewScanner(out)
	next := func() string {
		require.True(t, scanner.Scan(), "the worker ended: %v", scanner.Err())
		return scanner.Text()
	}
	w.step, err = strconv.Atoi(next())
	require.NoError(t, err)
	w.supervisor, err = strconv.Atoi(next())
	require.NoError(t, err)
	for range ready {
		require.Equal(t, "ready", next())
	}
	return w
}

// kill ends the worker with no chance to say anything.
func (w *worker) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, w.cmd.Process.Kill())
	_ = w.cmd.Wait() // it says that it was killed
}

// bounded is a context for a program that may hang if something is wrong.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

func sendSignal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	require.Greater(t, pid, 1)
	require.NoError(t, syscall.Kill(pid, sig))
}
