package resource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// TempDirs makes directories of an attempt's own, outside of the workspace. They
// are new and empty each time.
type TempDirs struct {
	// Base says where those of a holder are made.
	Base func(e *Entry) string
	// Remove removes a tree, whatever is in it.
	Remove func(ctx context.Context, dir string) error
}

var _ Kind = (*TempDirs)(nil)

// Name is the kind's.
func (t *TempDirs) Name() string { return KindTempDir }

// path is made of what is known before: one that a holder left can be found.
func (t *TempDirs) path(e *Entry) string {
	const bytes = 8
	sum := sha256.Sum256([]byte(e.Holder()))
	return filepath.Join(t.Base(e), "dir-"+hex.EncodeToString(sum[:bytes]))
}

// Acquire makes the directory.
func (t *TempDirs) Acquire(ctx context.Context, e *Entry, _ Ask) (Grant, error) {
	if err := t.Release(ctx, e); err != nil {
		return Grant{}, err
	}
	if err := os.Mkdir(t.path(e), 0o700); err != nil {
		return Grant{}, fmt.Errorf("making the directory %s: %w", e.Name, err)
	}
	e.ID = t.path(e)
	return Grant{Env: map[string]string{EnvDir + EnvName(e.Name): e.ID}}, nil
}

// Release removes the directory and what is in it.
func (t *TempDirs) Release(ctx context.Context, e *Entry) error {
	if _, err := os.Lstat(t.path(e)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := t.Remove(ctx, t.path(e)); err != nil {
		return fmt.Errorf("removing the directory %s: %w", e.Name, err)
	}
	return nil
}
