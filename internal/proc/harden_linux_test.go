package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/testkit/need"
)

// nobody is the user who may do nothing.
const nobody = 65534

// A step of the same user tries to read its worker's environment, command line,
// memory and descriptors, and those of its supervisor.
func TestStepsCannotLookIntoAHardenedWorker(t *testing.T) {
	t.Parallel()
	hardened := spy(t, "true")
	require.Equal(t, "looked\n", hardened)
	// The counter-test: without Harden they can, and only into the worker.
	open := spy(t, "false")
	require.Equal(t, 1, strings.Count(open, "worker-secret=1\n"), open)
	require.Equal(t, 1, strings.Count(open, "a descriptor\n"), open)
	require.Equal(t, 1, strings.Count(open, "memory\n"), open)
}

// spy runs the helper "hardened" as a user who is not root, since root may look
// into everything.
func spy(t *testing.T, harden string) string {
	t.Helper()
	cmd := unprivileged(t)
	cmd.Env = append(cmd.Env, helperEnv+"=hardened", "HARDEN="+harden, "SECRET=worker-secret=1")
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// unprivileged is this test binary for another user than root, with a state
// directory.
func unprivileged(t *testing.T) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	binary, state := filepath.Join(dir, "worker"), filepath.Join(dir, "state")
	copyFile(t, testBinary(t), binary)
	require.NoError(t, os.Mkdir(state, 0o755))
	cmd := exec.CommandContext(bounded(t), binary)
	cmd.Env = append(os.Environ(), "WORKER_STATE="+state)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(state, nobody, nobody))
		for up := dir; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
			require.NoError(t, os.Chmod(up, 0o755))
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		cmd.Dir = "/"
	}
	return cmd
}

// What a step starts as another user, as sudo does, may be out of the reach of a
// worker that is not root. It says so, and in time.
func TestWhatCannotBeEndedIsReported(t *testing.T) {
	t.Parallel()
	need.Root(t)
	setpriv := need.Program(t, "setpriv", "apt-get install util-linux")
	cmd := unprivileged(t)
	sudo := filepath.Join(filepath.Dir(cmd.Path), "sudo")
	copyFile(t, setpriv, sudo)
	require.NoError(t, os.Chmod(sudo, 0o755|os.ModeSetuid))
	pids := filepath.Join(t.TempDir(), "pids")
	require.NoError(t, os.WriteFile(pids, nil, 0o600))
	require.NoError(t, os.Chmod(pids, 0o666))
	require.NoError(t, os.Chmod(filepath.Dir(pids), 0o755))
	cmd.Env = append(cmd.Env, helperEnv+"=worker", "WORKER_NODE=run/build/step", "WORKER_DIR=/", "WORKER_NO_CGROUP=true",
		"WORKER_SCRIPT="+sudo+" --reuid 0 sleep "+forever+" & echo $! >"+pids+
			`; until grep -q '^Uid:.0.0' /proc/$!/status; do sleep 0.01; done; exit 3`)
	out, err := cmd.Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 3, exit.ExitCode())
	require.Contains(t, string(out), "not gone: 1 processes did not end within 1s of SIGKILL")
	left := pidsIn(t, filepath.Dir(pids))
	require.Len(t, living(left), 1)
	sendSignal(t, left[0], syscall.SIGKILL)
	awaitGone(t, left)
}

// copyFile copies a program by another process: were it open for writing here,
// a process that is just being started beside would keep it from being executed.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, exec.CommandContext(bounded(t), "cp", from, to).Run())
	require.NoError(t, os.Chmod(to, 0o755))
}
