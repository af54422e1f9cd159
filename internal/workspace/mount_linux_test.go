package workspace

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"belay.run/internal/testkit/need"
)

func TestBindOnAFullDisk(t *testing.T) {
	t.Parallel()
	need.Root(t)
	dir := fullDisk(t)
	h := reopen(t, dir)
	fill(t, dir)
	_, err := h.Bind(t.Context(), Binding{RunKey: "run", Node: "build", WorkflowID: "wf"})
	require.ErrorContains(t, err, "the disk is full")
	require.ErrorContains(t, err, "binding build")
	require.Empty(t, names(t, filepath.Join(dir, bindingsDir)), "nor is half a record left")
	require.Empty(t, names(t, filepath.Join(dir, stagesDir)))
}

func TestReleaseWhatCannotBeRemoved(t *testing.T) {
	t.Parallel()
	need.Root(t)
	h := open(t)
	dirs := bind(t, h, "run", "n")
	inside := filepath.Join(dirs.Workspace, "mnt")
	mount(t, t.TempDir(), inside)
	err := h.Release(t.Context(), "run", "n")
	var mounted *MountedError
	require.ErrorAs(t, err, &mounted)
	bindings, err := h.Bindings()
	require.NoError(t, err)
	require.Len(t, bindings, 1)

	// A new attempt does not see what is left, and does not lose its own.
	again := bind(t, h, "run", "n")
	require.Equal(t, dirs, again)
	unmount(t, mounted.Path)
	require.NoError(t, h.Release(t.Context(), "run", "n"))
	requireNothingLeft(t, h)
}

// permitted demands that err is nil. In a container that may not do what root
// may the test is skipped, but not in CI.
func permitted(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, unix.EPERM) && os.Getenv("CI") != "true" {
		t.Skipf("this root may not: %v; run the tests on a machine or in a privileged container", err)
	}
	require.NoError(t, err)
}

// mount binds from onto a new directory at to, or the file from onto a new file.
func mount(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	require.NoError(t, err)
	if info.IsDir() {
		require.NoError(t, os.MkdirAll(to, 0o700))
	} else {
		write(t, to, "")
	}
	permitted(t, unix.Mount(from, to, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) }) // the test may have done it
}

func unmount(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, unix.Unmount(path, 0))
}

// fullDisk mounts a very small disk.
func fullDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	permitted(t, unix.Mount("none", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "fill"))
	require.NoError(t, err)
	for size := 4096; size > 0 && err == nil; {
		if _, err = f.Write(bytes.Repeat([]byte{'x'}, size)); errors.Is(err, unix.ENOSPC) && size > 1 {
			size, err = size/2, nil
		}
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	require.NoError(t, f.Close())
}
