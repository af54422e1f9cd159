// Package workspace keeps the state directory of a host: its identity, which
// stages are bound to it, their directories, and the removal of those.
//
// What is on disk is written in an order that survives a kill at any point: the
// record of a stage before its directories, the removal of its directories
// before that of its record. A directory without a record is nobody's.
package workspace

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"belay.run/internal/run"
)

// idPattern is what a host id looks like: it is part of a task queue's name.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Host is a state directory in exclusive use by this process. Its methods are
// safe for concurrent use.
type Host struct {
	dir  string
	id   string
	boot string
	lock *os.File
	busy keyedLock
}

// Open takes the state directory dir, creating what is missing. It fails with a
// [LockedError] where another process has it.
func Open(dir string) (*Host, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("opening state directory %s: %w", dir, err)
	}
	if err := makeDirs(abs); err != nil {
		return nil, explain(abs, "opening", err)
	}
	lock, err := takeLock(abs)
	if err != nil {
		return nil, err
	}
	h := &Host{dir: abs, lock: lock}
	if err := errors.Join(dropHalfWritten(abs), h.identify()); err != nil {
		return nil, errors.Join(explain(abs, "opening", err), h.Close())
	}
	return h, nil
}

// Close gives the state directory back. What is in it stays.
func (h *Host) Close() error {
	if err := dropLock(h.lock); err != nil && !errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("closing state directory %s: %w", h.dir, err)
	}
	return nil
}

// Dir is the state directory.
func (h *Host) Dir() string { return h.dir }

// ID is the host's random id, the same as long as the state directory exists.
func (h *Host) ID() string { return h.id }

// Boot identifies the boot of the machine: after another boot no process of a
// stage is left, so nothing may go on where it was.
func (h *Host) Boot() string { return h.boot }

// Queue is the task queue of this host since this boot.
func (h *Host) Queue() string { return run.HostQueue(h.id, h.boot) }

// Cache is the directory that every stage on this host shares and none owns.
func (h *Host) Cache() string { return filepath.Join(h.dir, cacheDir) }

// Dirs names the directories of a stage, whether or not they exist.
func (h *Host) Dirs(runKey, node string) Dirs {
	return dirsAt(h.stage(stageName(runKey, node)))
}

func (h *Host) stage(name string) string  { return filepath.Join(h.dir, stagesDir, name) }
func (h *Host) record(name string) string { return filepath.Join(h.dir, bindingsDir, name+".json") }

func (h *Host) identify() error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	h.boot = boot
	h.id, err = readOrCreateID(filepath.Join(h.dir, idFile))
	return err
}

// readOrCreateID returns the id kept in file, making one up at the first start.
func readOrCreateID(file string) (string, error) {
	raw, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		id := newID()
		return id, writeFile(file, []byte(id+"\n"))
	case err != nil:
		return "", err
	}
	id := strings.TrimSpace(string(raw))
	if !idPattern.MatchString(id) {
		return "", fmt.Errorf("host id %q in %s is not an id: remove the file to get a new one", id, file)
	}
	return id, nil
}

// newID returns 12 hexadecimal digits; [rand.Read] never fails.
func newID() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// makeDirs creates the state directory and what it holds, closed to others.
func makeDirs(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory is entered by its owner
		return err
	}
	for _, name := range []string{bindingsDir, stagesDir, trashDir, cacheDir} {
		if err := makeDir(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// makeDir creates one directory and refuses anything else in its place: a link
// there would lead the clean-up out of the state directory.
func makeDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory but %s: move it away", path, info.Mode().Type())
	}
	return nil
}
