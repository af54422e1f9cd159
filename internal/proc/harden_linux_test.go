package proc

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A step of the same user tries to read its worker's environment, command line,
// memory and descriptors, and those of its supervisor.
func TestStepsCannotLookIntoAHardenedWorker(t *testing.T) {
	t.Parallel()
	hardened := spy(t, "true")
	require.Equal(t, "looked\n", hardened)
	// The counter-test: without Harden they can, and only into the worker.
	open := spy(t, "false")
	require.Contains(t, open, "worker-secret=1\n")
}

// spy runs the helper "hardened" as a user who is not root, since root may look
// into everything.
func spy(t *testing.T, harden string) string {
	t.Helper()
	dir := t.TempDir()
	binary, state := filepath.Join(dir, "worker"), filepath.Join(dir, "state")
	copyFile(t, testBinary(t), binary)
	require.NoError(t, os.Mkdir(state, 0o755))
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), helperEnv+"=hardened", "HARDEN="+harden, "WORKER_STATE="+state, "SECRET=worker-secret=1")
	cmd.Stderr = os.Stderr
	if os.Geteuid() == 0 {
		const nobody = 65534
		require.NoError(t, os.Chown(state, nobody, nobody))
		for up := dir; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
			require.NoError(t, os.Chmod(up, 0o755))
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Dir = "/"
	}
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	require.NoError(t, err)
	defer func() { require.NoError(t, in.Close()) }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
}
