package store

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path"
)

func (s *dirStore) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		start := "."
		if prefix != "" {
			switch info, err := s.Stat(ctx, prefix); {
			case err == nil:
				if !yield(info, nil) {
					return
				}
			case !errors.Is(err, ErrNotFound):
				yield(Info{}, err)
				return
			}
			start = dirName(prefix)
		}
		if err := s.walk(ctx, start, yield); err != nil {
			yield(Info{}, s.fault("listing", prefix, err))
		}
	}
}

// walk yields the objects in and below the directory start.
func (s *dirStore) walk(ctx context.Context, start string, yield func(Info, error) bool) error {
	err := fs.WalkDir(s.root.FS(), start, func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return ignoreMissing(err) // deleted while we look
		case name == tempDir:
			return fs.SkipDir
		}
		key, ok := keyOf(name)
		if !ok || !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		if !yield(Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil) {
			return fs.SkipAll
		}
		return nil
	})
	return ignoreMissing(err)
}

func (s *dirStore) Delete(ctx context.Context, prefix string) error {
	if err := checkKey(prefix); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := ignoreMissing(s.root.Remove(fileName(prefix)))
	dir := dirName(prefix)
	if err := s.fault("deleting", prefix, errors.Join(err, s.root.RemoveAll(dir))); err != nil {
		return err
	}
	// Folders that are empty now go too; one that is not ends this.
	dir = path.Dir(dir)
	for dir != "." && s.root.Remove(dir) == nil {
		dir = path.Dir(dir)
	}
	return nil
}

// ignoreMissing is err, unless that says that something is not there.
func ignoreMissing(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
