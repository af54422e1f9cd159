package devcmd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"belay.run/dev/stack"
	"belay.run/internal/telemetry"
)

// maxLog is how large the log may become before it is moved aside; one older
// file is kept.
const maxLog = 16 << 20

// logFile is a log that does not grow for ever. It is begun by the first line:
// whoever is refused the data directory then leaves alone the log of the one
// that has it.
type logFile struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
}

// renew starts a new file; the one before is kept as path.old.
func (l *logFile) renew() error {
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			return fmt.Errorf("closing the log: %w", err)
		}
	}
	if err := os.Rename(l.path, l.path+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("moving the old log aside: %w", err)
	}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	l.file, l.size = file, 0
	return nil
}

// Write appends p, which is a whole line.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil || l.size+int64(len(p)) > maxLog {
		if err := l.renew(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

// Close closes the file.
func (l *logFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// console is where a person reads warnings beside the log file; nil is nowhere.
type console struct{ io.Writer }

// beside returns log, with what is worth a person's attention written to the
// console too. What Temporal's server and the SDK say stays in the file: they
// warn of much that means nothing here.
func (c console) beside(log *zap.Logger) *zap.Logger {
	if c.Writer == nil {
		return log
	}
	people, err := telemetry.NewLogger(c, "warn", telemetry.FormatConsole)
	if err != nil {
		return log
	}
	return log.WithOptions(zap.WrapCore(func(file zapcore.Core) zapcore.Core {
		return zapcore.NewTee(file, quiet{people.Core()})
	}))
}

// quiet is a core that leaves out what the server and the SDK say.
type quiet struct{ zapcore.Core }

// With keeps it so.
func (q quiet) With(fields []zapcore.Field) zapcore.Core { return quiet{q.Core.With(fields)} }

// Check leaves out their loggers.
func (q quiet) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if slices.Contains(stack.LoudLoggers(), e.LoggerName) {
		return ce
	}
	return q.Core.Check(e, ce)
}
