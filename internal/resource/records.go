package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"belay.run/internal/run"
)

// Records are what a host knows by itself of what attempts on it acquired: a file
// for each, written before it is acquired, and removed when it is given back. They
// need no Redis, and outlive the worker.
type Records struct {
	dir string
}

// OpenRecords returns the records kept in dir, which is made where it is missing.
func OpenRecords(dir string) (*Records, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for records of resources: %w", err)
	}
	return &Records{dir: dir}, nil
}

func (r *Records) file(e *Entry) string {
	const bytes = 16
	sum := sha256.Sum256([]byte(e.Holder()))
	return filepath.Join(r.dir, hex.EncodeToString(sum[:bytes])+".json")
}

// Note writes an entry, or removes what is written of one that is released.
func (r *Records) Note(e *Entry) error {
	if !e.Open() {
		if err := os.Remove(r.file(e)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the record of %s %s: %w", e.Kind, e.Name, err)
		}
		return nil
	}
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("writing the record of %s %s: %w", e.Kind, e.Name, err)
	}
	// Whole or not at all: a record cut short would name nobody.
	half := r.file(e) + ".new"
	if err := os.WriteFile(half, text, 0o600); err != nil {
		return fmt.Errorf("writing the record of %s %s: %w", e.Kind, e.Name, err)
	}
	if err := os.Rename(half, r.file(e)); err != nil {
		return fmt.Errorf("writing the record of %s %s: %w", e.Kind, e.Name, err)
	}
	return nil
}

// Of returns what is not given back of a node of a run and of what lies in it,
// the last acquired first: the order in which it is to be released.
func (r *Records) Of(runKey, node string) ([]Entry, error) {
	all, err := r.All()
	return slices.DeleteFunc(all, func(e Entry) bool { return e.RunKey != runKey || !run.Within(e.Node, node) }), err
}

// All returns everything that is not given back, the last acquired first. With an
// error it returns what could be read.
func (r *Records) All() ([]Entry, error) {
	names, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the records of resources: %w", err)
	}
	var out []Entry
	var errs []error
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), ".json") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(r.dir, n.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // released meanwhile
		}
		var e Entry
		if err == nil {
			err = json.Unmarshal(text, &e)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("reading the record %s: %w", n.Name(), err))
			continue
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return b.Acquired.Compare(a.Acquired) })
	return out, errors.Join(errs...)
}
