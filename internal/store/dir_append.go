package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

func (s *dirStore) Append(ctx context.Context, key string, off int64, p []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.fault("appending to", key, s.appendAt(fileName(key), off, p))
}

func (s *dirStore) appendAt(name string, off int64, p []byte) (err error) {
	f, err := s.openAppend(name, off)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != off {
		return fmt.Errorf("%w: %d bytes long instead of %d", ErrConflict, info.Size(), off)
	}
	_, err = f.WriteAt(p, off)
	switch {
	case err == nil:
		return nil
	case off == 0: // it was not there before
		return errors.Join(err, s.root.Remove(name))
	}
	return errors.Join(err, f.Truncate(off))
}

func (s *dirStore) openAppend(name string, off int64) (f *os.File, err error) {
	if off > 0 {
		f, err = s.root.OpenFile(name, os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: gone, instead of %d bytes long", ErrConflict, off)
		}
		return f, err
	}
	err = s.inFolder(name, func() error {
		f, err = s.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w: exists already", ErrConflict)
	}
	return f, err
}
