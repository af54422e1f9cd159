package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Dir reads each secret from the file of its name, as Kubernetes mounts them:
// symbolic links are followed, and one newline at the end is not part of the
// value.
func Dir(path string) Provider { return dir(path) }

type dir string

func (d dir) Get(_ context.Context, name string) (Value, error) {
	if err := checkName(name); err != nil {
		return Value{}, err
	}
	text, err := readFile(filepath.Join(string(d), name))
	if errors.Is(err, fs.ErrNotExist) {
		return Value{}, notFound(name, d.Where(name))
	}
	if err != nil {
		return Value{}, fmt.Errorf("secret %s: %w", name, err)
	}
	return valueOf(name, d.Where(name), trimNewline(text))
}

func (d dir) Where(name string) string {
	return "the file " + filepath.Join(string(d), name)
}

func readFile(path string) (text string, err error) {
	// Without O_NONBLOCK a named pipe would hang here for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no regular file", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxSize {
		return "", fmt.Errorf("%s is larger than %d bytes", path, maxSize)
	}
	return string(b), nil
}

func trimNewline(s string) string {
	s, found := strings.CutSuffix(s, "\n")
	if found {
		s = strings.TrimSuffix(s, "\r")
	}
	return s
}
