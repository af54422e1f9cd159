package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// LockedError says that another process uses the state directory.
type LockedError struct {
	// Dir is the state directory.
	Dir string
	// Holder is what the other process wrote about itself: its pid and the
	// machine's name. It is empty in the moment before it has written it.
	Holder string
}

// Error names the holder and what to do.
func (e *LockedError) Error() string {
	holder := "another worker"
	if e.Holder != "" {
		holder += " (" + e.Holder + ")"
	}
	return fmt.Sprintf("state directory %s is in use by %s: stop it, or give this worker a directory of its own", e.Dir, holder)
}

// takeLock takes the exclusive lock of a state directory. The kernel drops it
// with the process, however that ends.
func takeLock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, explain(dir, "locking", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close() //nolint:errcheck // nothing was written to it
		if errors.Is(err, unix.EWOULDBLOCK) {
			// Who holds it is a help, not a need: unreadable means unnamed.
			holder, _ := os.ReadFile(path)
			return nil, &LockedError{Dir: dir, Holder: strings.TrimSpace(string(holder))}
		}
		return nil, explain(dir, "locking", err)
	}
	if err := writeHolder(f); err != nil {
		return nil, errors.Join(explain(dir, "locking", err), f.Close())
	}
	return f, nil
}

// dropLock gives the lock back. Closing the file is not enough: a child between its
// fork and its exec has it open too, and would hold the lock for that moment.
func dropLock(f *os.File) error {
	unlocked := unix.Flock(int(f.Fd()), unix.LOCK_UN)
	return errors.Join(unlocked, f.Close())
}

func writeHolder(f *os.File) error {
	// A machine without a name is no reason not to start.
	name, _ := os.Hostname()
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendf(nil, "pid %d on %s\n", os.Getpid(), name), 0)
	return err
}

// keyedLock is a mutex for each key that somebody holds or waits for.
type keyedLock struct {
	mu   sync.Mutex
	held map[string]*keyLock
}

type keyLock struct {
	sem   chan struct{}
	users int
}

// lock waits for key and returns the function that unlocks it, or gives up with
// the context's error.
func (k *keyedLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	k.mu.Lock()
	if k.held == nil {
		k.held = make(map[string]*keyLock)
	}
	l := k.held[key]
	if l == nil {
		l = &keyLock{sem: make(chan struct{}, 1)}
		k.held[key] = l
	}
	l.users++
	k.mu.Unlock()

	select {
	case l.sem <- struct{}{}:
		return func() { <-l.sem; k.leave(key, l) }, nil
	case <-ctx.Done():
		k.leave(key, l)
		return nil, context.Cause(ctx)
	}
}

func (k *keyedLock) leave(key string, l *keyLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.held, key)
	}
}
