package workspace

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountOf returns the id of the mount that the open file lies on. A bind mount
// has an id of its own where its device number is its surroundings'.
func mountOf(f *os.File) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	if err == nil && st.Mask&unix.STATX_MNT_ID != 0 {
		return st.Mnt_id, nil
	}
	// Before Linux 5.8, and in sandboxes without statx.
	raw, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	if err != nil {
		return 0, fmt.Errorf("finding the mount of %q: %w", f.Name(), err)
	}
	for line := range strings.Lines(string(raw)) {
		if id, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.ParseUint(strings.TrimSpace(id), 10, 64)
		}
	}
	return 0, fmt.Errorf("finding the mount of %q: the kernel does not tell", f.Name())
}

// mountedAt reports whether something is mounted on name in dir.
func (r *removal) mountedAt(dir *os.File, name string) bool {
	fd, err := openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() //nolint:errcheck // only looked at
	mount, err := mountOf(f)
	return err == nil && mount != r.mount
}

// unprotect takes the marks "immutable" and "append only" (chattr +i, +a) from
// name and from the directory that it is in. It reports whether there were any.
func unprotect(dir *os.File, name string) bool {
	changed := clearFlags(dir)
	// Without O_NONBLOCK a named pipe would wait for its other end.
	fd, err := openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return changed
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() //nolint:errcheck // only its flags are changed
	return clearFlags(f) || changed
}

func clearFlags(f *os.File) bool {
	const protecting = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND // the same bits as FS_IMMUTABLE_FL and FS_APPEND_FL
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil || flags&protecting == 0 {
		return false
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags&^protecting) == nil
}

// permitAt gives the owner all rights on a directory that cannot be opened. It
// goes by a descriptor, so that a link put in its place meanwhile is not
// followed.
func permitAt(dir *os.File, name string) error {
	fd, err := openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return err
	}
	err = unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700)
	return errors.Join(err, unix.Close(fd))
}
