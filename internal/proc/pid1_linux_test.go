package proc

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/testkit/need"
)

// container runs the helper "pid1" as the first process of a pid namespace, as
// a container does.
func container(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	need.Root(t)
	mount := need.Program(t, "mount", "apt-get install mount")
	cmd := exec.CommandContext(bounded(t), "/bin/sh", "-c", mount+` -t proc proc /proc && exec "$0"`, testBinary(t))
	cmd.Env = append(append(os.Environ(), helperEnv+"=pid1"), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		// What is mounted in there stays in there.
		Unshareflags: syscall.CLONE_NEWNS,
	}
	return cmd
}

func TestPID1ReapsAndPassesTheExitCodeOn(t *testing.T) {
	t.Parallel()
	out, err := container(t).Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 42, exit.ExitCode())
	fields := strings.Fields(string(out))
	require.Len(t, fields, 4, string(out))
	require.NotEqual(t, "1", fields[1], "the worker is no pid 1")
	require.Equal(t, "1", fields[3])
}

func TestPID1PassesSignalsOnOnce(t *testing.T) {
	t.Parallel()
	cmd := container(t, "PID1_WAIT=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.True(t, bufio.NewScanner(out).Scan())
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	err = cmd.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 43, exit.ExitCode())
}

// A worker that is killed takes its container along, but its supervisors give
// their steps the grace period first.
func TestPID1WaitsForTheStepsOfAKilledWorker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := container(t, "WORKER_STATE="+t.TempDir(), "WORKER_NODE=run/build/step", "WORKER_DIR="+dir, "WORKER_NO_CGROUP=true",
		`WORKER_SCRIPT=trap 'sleep 0.2; echo cleaned >cleaned; exit' TERM; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); while :; do sleep 0.01; done`)
	err := cmd.Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 128+9, exit.ExitCode())
	require.FileExists(t, filepath.Join(dir, "cleaned"))
}

func TestOnlyPID1IsPID1(t *testing.T) {
	t.Parallel()
	code, handled := RunAsPID1()
	require.False(t, handled)
	require.Zero(t, code)
}
