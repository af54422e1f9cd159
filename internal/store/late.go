package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"sync"
)

// late is a directory that may not be there yet: an empty store until somebody
// makes it, and made here only by what writes.
type late struct {
	dir string

	mu    sync.Mutex
	store Store // nil as long as the directory was not found
}

// openLate opens the directory if it is there.
func openLate(ctx context.Context, dir string) (Store, error) {
	s := &late{dir: dir}
	_, err := s.found(ctx)
	return s, err
}

// found is the store in the directory, nil where there is none.
func (s *late) found(ctx context.Context) (Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store != nil {
		return s.store, nil
	}
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no directory is an empty store
	}
	return s.openLocked(ctx)
}

// made is the store in the directory, which is made where it is missing.
func (s *late) made(ctx context.Context) (Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store != nil {
		return s.store, nil
	}
	return s.openLocked(ctx)
}

func (s *late) openLocked(ctx context.Context) (Store, error) {
	st, err := openDir(ctx, s.dir)
	if err != nil {
		return nil, err
	}
	s.store = st
	return st, nil
}

// reading is found for one object.
func (s *late) reading(ctx context.Context, key string) (Store, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	st, err := s.found(ctx)
	if err == nil && st == nil {
		err = fmt.Errorf("store %s: reading %q: %w", s.dir, key, ErrNotFound)
	}
	return st, err
}

func (s *late) Put(ctx context.Context, key string, r io.Reader, limit int64) (Info, error) {
	st, err := s.made(ctx)
	if err != nil {
		return Info{}, err
	}
	return st.Put(ctx, key, r, limit)
}

func (s *late) Append(ctx context.Context, key string, off int64, p []byte) error {
	st, err := s.made(ctx)
	if err != nil {
		return err
	}
	return st.Append(ctx, key, off, p)
}

func (s *late) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	st, err := s.reading(ctx, key)
	if err != nil {
		return nil, err
	}
	return st.Get(ctx, key)
}

func (s *late) ReadAt(ctx context.Context, key string, p []byte, off int64) (int, error) {
	st, err := s.reading(ctx, key)
	if err != nil {
		return 0, err
	}
	return st.ReadAt(ctx, key, p, off)
}

func (s *late) Stat(ctx context.Context, key string) (Info, error) {
	st, err := s.reading(ctx, key)
	if err != nil {
		return Info{}, err
	}
	return st.Stat(ctx, key)
}

func (s *late) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		st, err := s.found(ctx)
		switch {
		case err != nil:
			yield(Info{}, err)
		case st != nil:
			st.List(ctx, prefix)(yield)
		}
	}
}

func (s *late) Delete(ctx context.Context, prefix string) error {
	if err := checkKey(prefix); err != nil {
		return err
	}
	st, err := s.found(ctx)
	if err != nil || st == nil {
		return err
	}
	return st.Delete(ctx, prefix)
}

func (s *late) String() string { return s.dir }

func (s *late) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}
