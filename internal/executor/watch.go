package executor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// Watch sets limits from a file when it begins and whenever what the file says has
// changed, until ctx ends: within a second, and at once on each
// signal of now. It reads the file rather than asking the system what happened to
// it, so that it does not matter how a file is replaced. What is wrong with a file
// is logged once, and the limits stay as they were; so they do where the file is
// gone.
func Watch(ctx context.Context, path string, now <-chan os.Signal, set func(Limits) error, log *zap.Logger) {
	w := watch{path: path, set: set, log: log}
	w.look()
	const look = time.Second
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-now:
			w.seen, w.failed = nil, nil
			w.look()
		case <-ticker.C:
			w.look()
		}
	}
}

// watch is a file of limits, and what was last seen of it.
type watch struct {
	path   string
	set    func(Limits) error
	log    *zap.Logger
	seen   []byte
	failed error
}

func (w *watch) read() ([]byte, error) {
	// Without O_NONBLOCK a named pipe would hang here for ever, and the worker's end
	// with it.
	f, err := os.OpenFile(w.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("reading limits: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading limits: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("reading limits: %s is not a regular file", w.path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading limits: %w", err)
	}
	return text, nil
}

func (w *watch) look() {
	text, err := w.read()
	if err != nil {
		if w.failed == nil || w.failed.Error() != err.Error() {
			w.log.Error("the limits of light tasks stay as they were", zap.Error(err))
		}
		w.failed = err
		return
	}
	same := w.failed == nil && w.seen != nil && bytes.Equal(text, w.seen)
	if w.seen, w.failed = text, nil; same {
		return
	}
	limits, err := parseLimits(text)
	if err == nil {
		err = w.set(limits)
	}
	if err != nil {
		w.log.Error("the limits of light tasks stay as they were", zap.String("file", w.path), zap.Error(err))
		return
	}
	w.log.Info("the limits of light tasks were set", zap.String("file", w.path))
}
