package types

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// fileMost bounds a file that a task reads.
const fileMost = 16 << 20

// readPath reads a parameter that names a file by its whole path.
func readPath(a *task.Args, name string) string {
	path := a.Text(name, "")
	if !a.Has(name) {
		return ""
	}
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		a.Wrong(name, "found %.64q, expected the whole path of a file", path)
	}
	return filepath.Clean(path)
}

// file is a file that a task may touch, in a folder that is open: what is done
// with it stays below the folder that tasks are allowed, whatever becomes of
// links on the way.
type file struct {
	folder *os.Root
	name   string
	path   string
}

// openFile opens the folder of a file. It is to be closed.
func (t Tools) openFile(param, path string) (*file, error) {
	if t.Files == "" {
		return nil, task.Failf(run.TriggerInvalid, "%s: this worker lets no task touch files; its configuration can name a folder", param)
	}
	allowed, err := filepath.EvalSymlinks(t.Files)
	if err != nil {
		return nil, task.Failf(run.TriggerInvalid, "%s: the folder that this worker allows: %s", param, err)
	}
	// A link is not replaced by a file, but what it leads to.
	if led, err := filepath.EvalSymlinks(path); err == nil {
		path = led
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil, task.Failf(run.TriggerInvalid, "%s: the folder of %s: %s", param, path, reason(err))
	}
	rel, err := filepath.Rel(allowed, folder)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, task.Failf(run.TriggerInvalid, "%s: %s lies outside of %s, below which this worker lets tasks touch files", param, path, t.Files)
	}
	top, err := os.OpenRoot(allowed)
	if err != nil {
		return nil, task.Failf(run.TriggerInvalid, "%s: the folder that this worker allows: %s", param, err)
	}
	defer func() { _ = top.Close() }() // only read
	within, err := top.OpenRoot(rel)
	if err != nil {
		return nil, task.Failf(run.TriggerInvalid, "%s: the folder of %s: %s", param, path, reason(err))
	}
	return &file{folder: within, name: filepath.Base(path), path: path}, nil
}

func (f *file) close() { _ = f.folder.Close() } // a folder has nothing to lose

// read is the file's text, up to most bytes. It is fs.ErrNotExist where
// there is none.
func (f *file) read(most int64) ([]byte, error) {
	// Without O_NONBLOCK a named pipe would hang here for ever.
	in, err := f.folder.OpenFile(f.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, reason(err))
	}
	defer func() { _ = in.Close() }() // only read
	info, err := in.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, reason(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", f.path)
	}
	content, err := io.ReadAll(io.LimitReader(in, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", f.path, reason(err))
	case int64(len(content)) > most:
		return nil, fmt.Errorf("%s is larger than %d bytes", f.path, most)
	}
	return content, nil
}

// replace puts content in the file's place, whole or not at all, also when the
// power fails: whoever reads it sees the old or the new.
func (f *file) replace(content []byte, mode fs.FileMode) (err error) {
	temp := "." + f.name + "." + rand.Text() + ".tmp"
	defer func() {
		if err != nil {
			_ = f.folder.Remove(temp) // the error that there is says more
			err = fmt.Errorf("writing %s: %w", f.path, reason(err))
		}
	}()
	out, err := f.folder.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	if err == nil {
		err = out.Chmod(mode) // not less the umask
	}
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	if err = f.folder.Rename(temp, f.name); err != nil {
		return err
	}
	return f.syncFolder()
}

func (f *file) syncFolder() error {
	folder, err := f.folder.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// reason is what went wrong with a path, without the path, which the message
// has already.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
