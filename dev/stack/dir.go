package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"belay.run/dev/tempdir"
)

// dir is where a stack keeps its state: the data directory, held by a lock, or
// a temporary one that goes with the stack.
type dir struct {
	path string
	temp *tempdir.Dir // nil where it is the data directory
	lock *os.File
}

func openDir(data string) (*dir, error) {
	if data == "" {
		temp, err := tempdir.New("")
		if err != nil {
			return nil, err
		}
		return &dir{path: temp.Path, temp: temp}, nil
	}
	path, err := filepath.Abs(data)
	if err != nil {
		return nil, fmt.Errorf("finding the data directory %s: %w", data, err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("creating the data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	switch err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, errors.Join(fmt.Errorf("data directory %s is in use by another process: end that one, or choose another directory", path), lock.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("locking the data directory %s: %w", path, err), lock.Close())
	}
	return &dir{path: path, lock: lock}, nil
}

// durable is the path of something inside that survives the stack; "" where nothing
// does.
func (d *dir) durable(name string) string {
	if d.temp != nil {
		return ""
	}
	return filepath.Join(d.path, name)
}

func (d *dir) close() error {
	if d.temp != nil {
		return d.temp.Remove()
	}
	// Closing is not enough: a child between its fork and its exec has the file open
	// too, and would hold the lock for that moment.
	return errors.Join(syscall.Flock(int(d.lock.Fd()), syscall.LOCK_UN), d.lock.Close())
}
