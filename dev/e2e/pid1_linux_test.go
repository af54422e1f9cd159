package e2e_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
	"belay.run/internal/testkit/need"
)

// asPID1 has a worker be the first process of a pid namespace, as in a container.
func asPID1(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	need.Root(t)
	mount := need.Program(t, "mount", "apt-get install mount")
	alone := func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", mount + ` -t proc proc /proc && exec "$0" "$@"`}, cmd.Args...)
		cmd.Path = "/bin/sh"
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
			// What is mounted in there stays in there.
			Unshareflags: syscall.CLONE_NEWNS,
		}
	}
	probe := exec.CommandContext(t.Context(), "/bin/true")
	alone(probe)
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("SKIP: needs the right to make a pid namespace and to mount /proc in it: %v %s", err, out)
	}
	return alone
}

// inNamespaceOf are the processes in the pid namespace of another in a state of
// /proc: Z is that of zombies.
func inNamespaceOf(t *testing.T, pid int, state string) []string {
	t.Helper()
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	require.NoError(t, err)
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	var found []string
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil || !strings.Contains(string(stat), ") "+state+" ") {
			continue // it has ended meanwhile
		}
		if of, err := os.Readlink(filepath.Join(dir, "ns/pid")); err == nil && of == namespace {
			found = append(found, string(stat))
		}
	}
	return found
}

// TestNoZombiesOfAWorkerThatIsPID1 lets 200 steps of a worker that is the first
// process of its container make 5,000 orphans by double forks, which end while the
// step runs, after its main process, and after its supervisor was killed.
func TestNoZombiesOfAWorkerThatIsPID1(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	w := env.StartWorkerAs(t, asPID1(t), env.Temporal.Address(), t.TempDir(), "--labels", "pid1", "--max-processes", "8")
	const stages, legs, forks = 5, 40, 25
	var file strings.Builder
	file.WriteString("version: 1\nname: forks\nstages:\n")
	for i := range stages {
		fmt.Fprintf(&file, `
  - name: s%d
    runs_on: pid1
    steps:
      - name: g
        parallel:
`, i)
		for k := range legs {
			// Every fourth loses its supervisor with its children alive.
			last := "exit 0"
			if k%4 == 3 {
				last = "kill -9 $PPID; sleep 60"
			}
			fmt.Fprintf(&file, `          - {name: f%d, on_failure: ignore, run: 'i=0; while [ $i -lt %d ]; do (setsid sleep 0.$((i %% 9)) &); i=$((i+1)); done; %s'}
`, k, forks, last)
		}
	}
	r := env.Run(t, file.String())
	doc := r.Wait()
	require.Equal(t, run.Succeeded, doc.Status, doc.Cause)
	nodes := e2e.Nodes(doc)
	for i := range stages {
		require.Equal(t, run.Succeeded, nodes[fmt.Sprintf("s%d/f0", i)].Status)
		require.Equal(t, run.Failed, nodes[fmt.Sprintf("s%d/f3", i)].Status)
	}
	require.Eventually(t, func() bool { return len(inNamespaceOf(t, w.PID(), "Z")) == 0 }, e2e.Patience, 50*time.Millisecond,
		"zombies: %v", inNamespaceOf(t, w.PID(), "Z"))
	w.Signal(syscall.SIGTERM)
	require.Equal(t, 0, w.WaitExit())
}

// asNobody has a worker run as a user who may do nothing, from a copy of this
// program that such a user may read.
func asNobody(t *testing.T, dir string) func(*exec.Cmd) {
	t.Helper()
	need.Root(t)
	const nobody = 65534
	binary := filepath.Join(dir, "worker")
	from, err := os.Open("/proc/self/exe")
	require.NoError(t, err)
	to, err := os.OpenFile(binary, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(to, from)
	require.NoError(t, err)
	require.NoError(t, to.Close())
	require.NoError(t, from.Close())
	for _, name := range []string{"state", "store", "out"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		require.NoError(t, os.Chown(filepath.Join(dir, name), nobody, nobody))
	}
	return func(cmd *exec.Cmd) {
		cmd.Path, cmd.Dir = binary, dir
		cmd.Env = append(cmd.Env, "HOME="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
}

// TestOrdinaryUser: a worker that may not make cgroups ends daemons all the same,
// with its supervisors, and so do these without the worker.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	dir, err := os.MkdirTemp("", "belay-nobody-") //nolint:usetesting // another user has to come through
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	w := env.StartWorkerAs(t, asNobody(t, dir), env.Temporal.Address(), filepath.Join(dir, "state"),
		"--labels", "ordinary", "--store", "file://"+filepath.Join(dir, "store"), "--port-dir", filepath.Join(dir, "state", "ports"))
	start := func(mark string) *e2e.Run {
		r := env.Run(t, on("ordinary", `
    steps:
      - name: a
        grace_period: 1s
        run: |
          id -u > '`+dir+`/out/user'
          trap '' TERM
          setsid sleep `+mark+` &
          (setsid sh -c 'trap "" TERM; sleep `+mark+` & sleep `+mark+`' &)
          (env -i setsid sleep `+mark+` &)
          sleep `+mark+`
`))
		require.Eventually(t, func() bool { return len(sleeping(t, mark)) == 5 }, e2e.Patience, 20*time.Millisecond, "the step does not run")
		return r
	}

	mark := seconds(381)
	r := start(mark)
	user, err := os.ReadFile(filepath.Join(dir, "out", "user"))
	require.NoError(t, err)
	require.Equal(t, "65534\n", string(user))
	got := env.CLI(t, "cancel", r.String(), "--wait")
	requireGone(t, mark)
	require.Equal(t, 0, got.Code, got.Stdout+got.Stderr)

	mark = seconds(382)
	r = start(mark)
	w.Kill()
	require.Eventually(t, func() bool { return len(marked(t, mark)) == 0 }, e2e.Patience, 20*time.Millisecond)
	require.Equal(t, run.TriggerWorkerLost, r.Wait().Cause.Trigger)
}
