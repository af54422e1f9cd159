package workspace

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func contextForRole() context.Context { return context.Background() }

// open opens a state directory of the test's own.
func open(t *testing.T) *Host {
	t.Helper()
	return reopen(t, t.TempDir())
}

func reopen(t *testing.T, dir string) *Host {
	t.Helper()
	h, err := Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

// bind binds a stage and returns its directories.
func bind(t *testing.T, h *Host, runKey, node string) Dirs {
	t.Helper()
	dirs, err := h.Bind(t.Context(), Binding{RunKey: runKey, Node: node, WorkflowID: "id/" + runKey + "/" + node, RunID: "r1"})
	require.NoError(t, err)
	return dirs
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// names lists a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// requireNothingLeft makes sure that of all stages not a file is left.
func requireNothingLeft(t *testing.T, h *Host) {
	t.Helper()
	for _, dir := range []string{bindingsDir, stagesDir, trashDir} {
		require.Empty(t, names(t, filepath.Join(h.Dir(), dir)), dir)
	}
}

// child runs this test binary in a role, as another user where uid is not 0.
func child(t *testing.T, role string, uid uint32, args ...string) (output string, err error) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, args...)
	if uid != 0 {
		// The binary lies in a directory that only its owner may enter.
		cmd.Path = "/proc/self/fd/3"
		f, err := os.Open(exe)
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()
		cmd.ExtraFiles = []*os.File{f}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	cmd.Env = append(os.Environ(), "WORKSPACE_TEST_ROLE="+role)
	var buf bytes.Buffer
	cmd.Stdout, cmd.Stderr = &buf, &buf
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return buf.String(), err
}
