package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
	"time"
)

const (
	// tempDir holds what Put has not completed. No escaped name starts with a
	// dot, so it is never taken for a folder of objects.
	tempDir = ".tmp"
	// tempAge is after how long a temporary file is taken to be left behind by
	// a process that was killed.
	tempAge = 24 * time.Hour
	// The umask of the process decides who else may read and write.
	dirMode  = 0o777
	fileMode = 0o666
)

// dirStore keeps each object in a file. It reaches them through os.Root, so no
// key and no symbolic link leads out of its directory.
type dirStore struct {
	path string
	root *os.Root
}

func openDir(ctx context.Context, dir string) (Store, error) {
	fail := func(err error) (Store, error) { return nil, fmt.Errorf("opening store %s: %w", dir, err) }
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fail(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fail(err)
	}
	s := &dirStore{path: dir, root: root}
	if err := s.sweep(ctx); err != nil {
		return fail(errors.Join(err, root.Close()))
	}
	return s, nil
}

// sweep removes temporary files that nobody can be writing any more. Who may
// only read the store leaves them to others.
func (s *dirStore) sweep(ctx context.Context) error {
	entries, err := fs.ReadDir(s.root.FS(), tempDir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < tempAge {
			continue // gone meanwhile, or in use
		}
		err = s.root.Remove(path.Join(tempDir, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// fault says what was being done where, and marks a full disk as such.
func (s *dirStore) fault(doing, key string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("store %s: %s %q: %w", s.path, doing, key, err)
}

// missing is fault for reading what may not be there.
func (s *dirStore) missing(doing, key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	return s.fault(doing, key, err)
}

func (s *dirStore) Put(ctx context.Context, key string, r io.Reader, limit int64) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	temp := path.Join(tempDir, rand.Text())
	err := s.root.MkdirAll(tempDir, dirMode)
	if err == nil {
		err = s.fill(temp, &limited{ctx: ctx, r: r, limit: limit})
	}
	if err == nil {
		err = s.publish(temp, fileName(key))
	}
	if err != nil {
		// Best effort: what stays is swept later, and err says more.
		_ = s.root.Remove(temp)
		return Info{}, s.fault("writing", key, err)
	}
	return s.Stat(ctx, key)
}

// fill writes a new file and makes it durable.
func (s *dirStore) fill(name string, r io.Reader) (err error) {
	f, err := s.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	return f.Sync()
}

// publish gives a complete file its name, durably.
func (s *dirStore) publish(temp, name string) error {
	if err := s.inFolder(name, func() error { return s.root.Rename(temp, name) }); err != nil {
		return err
	}
	d, err := s.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// inFolder runs create, which creates the file name, and makes its folder
// where that is missing. A Delete may take an empty folder away in between, so
// it tries more than once.
func (s *dirStore) inFolder(name string, create func() error) error {
	var err error
	for range 10 {
		if err = create(); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := s.root.MkdirAll(path.Dir(name), dirMode); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

func (s *dirStore) Get(_ context.Context, key string) (io.ReadCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	f, err := s.root.Open(fileName(key))
	if err != nil {
		return nil, s.missing("reading", key, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, s.fault("reading", key, errors.Join(err, f.Close()))
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, info.Size()), f}, nil
}

func (s *dirStore) ReadAt(ctx context.Context, key string, p []byte, off int64) (int, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	f, err := s.root.Open(fileName(key))
	if err != nil {
		return 0, s.missing("reading", key, err)
	}
	n, err := f.ReadAt(p, off)
	if cerr := f.Close(); err == nil || errors.Is(err, io.EOF) && cerr != nil {
		err = cerr
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = s.fault("reading", key, err)
	}
	return n, err
}

func (s *dirStore) Stat(_ context.Context, key string) (Info, error) {
	if err := checkKey(key); err != nil {
		return Info{}, err
	}
	info, err := s.root.Stat(fileName(key))
	if err != nil {
		return Info{}, s.missing("looking at", key, err)
	}
	return Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil
}

func (s *dirStore) String() string { return s.path }

func (s *dirStore) Close() error { return s.root.Close() }
