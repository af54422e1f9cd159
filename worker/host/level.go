package host

import (
	"context"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// switchLevel has the log say everything after one signal, and what the settings
// say after the next, until ctx ends. A log that says everything anyway says less.
func switchLevel(ctx context.Context, signals <-chan os.Signal, level zap.AtomicLevel, log *zap.Logger) {
	now, next := level.Level(), zapcore.DebugLevel
	if now == next {
		next = zapcore.InfoLevel
	}
	for {
		select {
		case <-signals:
			now, next = next, now
			level.SetLevel(now)
			log.Warn("the level of this log was changed by a signal", zap.Stringer("level_now", now))
		case <-ctx.Done():
			return
		}
	}
}
