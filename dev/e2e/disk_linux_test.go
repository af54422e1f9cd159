package e2e_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/testkit/need"
)

// smallDisk puts a directory on a small disk of its own for the time of the test.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	need.Root(t)
	if err := mountDisk(t, dir); err != nil {
		t.Skip("SKIP: needs the right to mount a small disk: ", err)
	}
}

// mountDisk is smallDisk for who can do without.
func mountDisk(t *testing.T, dir string) error {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32m"); err != nil {
		return err
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return nil
}

// freeze makes the disk under a directory refuse writes.
func freeze(t *testing.T, dir string) func() {
	t.Helper()
	remount := func(flags uintptr) func() bool {
		// Busy as long as a file is open to be written.
		return func() bool { return syscall.Mount("", dir, "", syscall.MS_REMOUNT|flags, "") == nil }
	}
	require.Eventually(t, remount(syscall.MS_RDONLY), e2e.Patience, time.Millisecond, "the disk is never idle")
	return func() { require.Eventually(t, remount(0), e2e.Patience, time.Millisecond) }
}
