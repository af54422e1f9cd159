package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// dirFlags open a directory and nothing else, not even by a link.
const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// openBeneath opens the directory rel below base without following a link on
// the way down from base.
func openBeneath(base, rel string) (*os.File, error) {
	fd, err := unix.Open(base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), base)
	if rel == "." {
		return dir, nil
	}
	for part := range strings.SplitSeq(rel, string(filepath.Separator)) {
		next, err := openDir(dir, part)
		if err := errors.Join(err, dir.Close()); err != nil {
			return nil, err
		}
		dir = next
	}
	return dir, nil
}

// openDir opens the directory name in dir, opening it up first where its owner
// has no right to read it.
func openDir(dir *os.File, name string) (*os.File, error) {
	fd, err := openat(dir, name, dirFlags)
	if errors.Is(err, unix.EACCES) {
		if err := permitAt(dir, name); err != nil {
			return nil, err
		}
		fd, err = openat(dir, name, dirFlags)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)), nil
}

func openat(dir *os.File, name string, flags int) (fd int, err error) {
	err = retryInterrupted(func() error {
		fd, err = unix.Openat(int(dir.Fd()), name, flags, 0)
		return err
	})
	return fd, err
}

// unlink removes name from dir unless it is a directory.
func unlink(dir *os.File, name string) (isDir bool, err error) {
	err = retryInterrupted(func() error { return unix.Unlinkat(int(dir.Fd()), name, 0) })
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return false, nil
	case errors.Is(err, unix.EISDIR):
		return true, nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		// Some systems answer so for a directory.
		var st unix.Stat_t
		if statErr := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); statErr == nil {
			isDir = st.Mode&unix.S_IFMT == unix.S_IFDIR
		}
	}
	return isDir, err
}

// rmdir removes the empty directory name from dir.
func rmdir(dir *os.File, name string) error {
	remove := func() error { return unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR) }
	err := retryInterrupted(remove)
	if errors.Is(err, unix.EPERM) && unprotect(dir, name) {
		err = retryInterrupted(remove)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// permit gives the owner the rights that removing the content needs. Where that
// is refused, the removal that needs it says so.
func permit(dir *os.File) error {
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o700 != 0o700 {
		_ = dir.Chmod(0o700)
	}
	return nil
}

func retryInterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
