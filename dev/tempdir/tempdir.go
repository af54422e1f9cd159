// Package tempdir gives a development environment directories that go with its
// process: those of one that was killed go when the next begins.
package tempdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// prefix is what the names of all of them begin with.
const prefix = "belay-dev-"

// lockName is the file in each that its process holds locked.
const lockName = "lock"

// Dir is a temporary directory of this process.
type Dir struct {
	Path string

	lock *os.File
}

// New makes a directory, with name as part of its own, and first removes those
// whose process is gone.
func New(name string) (*Dir, error) {
	sweep(os.TempDir())
	path, err := os.MkdirTemp("", prefix+name)
	if err != nil {
		return nil, fmt.Errorf("creating a temporary directory: %w", err)
	}
	lock, err := hold(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking the temporary directory: %w", err), os.RemoveAll(path))
	}
	return &Dir{Path: path, lock: lock}, nil
}

// Remove removes the directory with all that is in it.
func (d *Dir) Remove() error {
	return errors.Join(os.RemoveAll(d.Path), d.lock.Close())
}

// hold locks a directory. The lock is there only once it is held, so that no
// sweep comes between.
func hold(path string) (*os.File, error) {
	lock, err := os.CreateTemp(path, lockName)
	if err != nil {
		return nil, err
	}
	if err := take(lock); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if err := os.Rename(lock.Name(), filepath.Join(path, lockName)); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func take(lock *os.File) error {
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// sweep removes the directories that no process holds. What it cannot remove,
// such as those of other users, stays: it is not what anybody waits for.
func sweep(in string) {
	entries, err := filepath.Glob(filepath.Join(in, prefix+"*"))
	if err != nil {
		return
	}
	for _, path := range entries {
		if info, err := os.Lstat(path); err == nil && info.IsDir() {
			sweepOne(path)
		}
	}
}

func sweepOne(path string) {
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer lock.Close() //nolint:errcheck // nothing was written
	if take(lock) == nil {
		_ = os.RemoveAll(path) // see sweep
	}
}
