//go:build unix && !linux

package workspace

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mountOf returns the number of the device that the open file lies on.
func mountOf(f *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("finding the mount of %q: %w", f.Name(), err)
	}
	return uint64(st.Dev), nil //nolint:gosec // compared, not computed with
}

// mountedAt reports whether something is mounted on name in dir.
func (r *removal) mountedAt(dir *os.File, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && uint64(st.Dev) != r.mount //nolint:gosec // compared, not computed with
}

// unprotect finds no such marks on this system.
func unprotect(*os.File, string) bool { return false }

// permitAt gives the owner all rights on a directory that cannot be opened.
func permitAt(dir *os.File, name string) error {
	return unix.Fchmodat(int(dir.Fd()), name, 0o700, unix.AT_SYMLINK_NOFOLLOW)
}
