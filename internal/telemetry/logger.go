// Package telemetry builds the logger of Belay's programs and hands it to the
// libraries that bring interfaces of their own.
package telemetry

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Formats of a log line.
const (
	// FormatJSON is one JSON object a line, for machines.
	FormatJSON = "json"
	// FormatConsole is plain text, for people.
	FormatConsole = "console"
)

// NewLogger returns a logger that writes lines of the given format to w, from
// the given level (debug, info, warn or error) up. It is safe for concurrent
// use whether or not w is. A line that w does not take is lost; standard error
// is told of the first one only.
func NewLogger(w io.Writer, level, format string) (*zap.Logger, error) {
	log, _, err := NewAdjustable(w, level, format)
	return log, err
}

// NewAdjustable is [NewLogger] with a level that may be changed while it logs.
func NewAdjustable(w io.Writer, level, format string) (*zap.Logger, zap.AtomicLevel, error) {
	adjustable := zap.NewAtomicLevel()
	lvl, err := parseLevel(level)
	if err != nil {
		return nil, adjustable, err
	}
	enc, err := newEncoder(format)
	if err != nil {
		return nil, adjustable, err
	}
	adjustable.SetLevel(lvl)
	return newLogger(zapcore.NewCore(enc, zapcore.Lock(zapcore.AddSync(w)), adjustable), os.Stderr), adjustable, nil
}

// Quiet returns log with nothing below a warning, save while log is at level debug:
// for a library that has much to say, which is for those who look for a reason.
func Quiet(log *zap.Logger) *zap.Logger {
	core := log.Core()
	return log.WithOptions(zap.IncreaseLevel(zap.LevelEnablerFunc(func(l zapcore.Level) bool {
		return core.Enabled(l) && (l >= zapcore.WarnLevel || core.Enabled(zapcore.DebugLevel))
	})))
}

// newLogger is a logger whose own faults go to errs.
func newLogger(core zapcore.Core, errs io.Writer) *zap.Logger {
	return zap.New(core, zap.ErrorOutput(zapcore.Lock(zapcore.AddSync(&first{w: errs}))))
}

// first passes on what is written to it first and drops the rest: a disk that
// is full is full for each line.
type first struct {
	w    io.Writer
	said bool
}

func (f *first) Write(p []byte) (int, error) {
	if f.said {
		return len(p), nil
	}
	f.said = true
	return f.w.Write(p)
}

// OrNop returns log, or a logger that drops everything where log is nil.
func OrNop(log *zap.Logger) *zap.Logger {
	if log == nil {
		return zap.NewNop()
	}
	return log
}

// parseLevel refuses the levels of zap that end the process.
func parseLevel(level string) (zapcore.Level, error) {
	lvl, err := zapcore.ParseLevel(level)
	if err != nil || lvl > zapcore.ErrorLevel {
		return 0, fmt.Errorf("log level %q: want debug, info, warn or error", level)
	}
	return lvl, nil
}

func newEncoder(format string) (zapcore.Encoder, error) {
	cfg := zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", NameKey: "logger", MessageKey: "message", StacktraceKey: "stack",
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeTime:     zapcore.TimeEncoderOfLayout(time.RFC3339Nano),
		EncodeDuration: zapcore.StringDurationEncoder,
	}
	switch strings.ToLower(format) {
	case FormatJSON:
		return zapcore.NewJSONEncoder(cfg), nil
	case FormatConsole:
		cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		cfg.EncodeLevel = zapcore.CapitalLevelEncoder
		return zapcore.NewConsoleEncoder(cfg), nil
	}
	return nil, fmt.Errorf("log format %q: want %s or %s", format, FormatJSON, FormatConsole)
}
