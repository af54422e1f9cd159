package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// newPrefix begins the names of files that are being written.
const newPrefix = ".new-"

// dropHalfWritten removes what a process that was killed had not finished
// writing. Only who has the lock may.
func dropHalfWritten(dir string) error {
	var errs []error
	for _, d := range []string{dir, filepath.Join(dir, bindingsDir)} {
		entries, err := os.ReadDir(d)
		errs = append(errs, err)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), newPrefix) {
				errs = append(errs, os.Remove(filepath.Join(d, e.Name())))
			}
		}
	}
	return errors.Join(errs...)
}

// writeFile writes a small file so that whoever reads it sees all of it or
// none. It does not wait for the disk: nothing in a state directory is gone on
// with after the machine went down, and a disk that builds write to can take
// seconds.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), newPrefix+"*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// explain wraps err with what was being done to the state directory, and says
// what to do about the errors that a person can mend.
func explain(dir, doing string, err error) error {
	if err == nil {
		return nil
	}
	hint := ""
	switch {
	case errors.Is(err, unix.ENOSPC):
		hint = " (the disk is full: free space there, or put the state directory on a larger disk)"
	case errors.Is(err, unix.EDQUOT):
		hint = " (the disk quota is used up: free space there, or put the state directory elsewhere)"
	case errors.Is(err, unix.EROFS):
		hint = " (the file system is read-only: choose a directory that this user can write)"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		hint = fmt.Sprintf(" (user %d must own it: change its owner, or choose another directory)", os.Getuid())
	}
	return fmt.Errorf("%s state directory %s: %w%s", doing, dir, err, hint)
}
