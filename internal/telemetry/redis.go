package telemetry

import (
	"context"
	"fmt"

	"go.uber.org/zap"
)

// Redis adapts log to the logger of the Redis client, for redis.SetLogger. What
// the client writes by itself, such as each connection that failed, is told to
// its caller too: it is for those who look for the reason.
func Redis(log *zap.Logger) *RedisLogger { return &RedisLogger{zap: OrNop(log)} }

// RedisLogger takes the lines of the Redis client.
type RedisLogger struct {
	zap *zap.Logger
}

// Printf logs a line.
func (r *RedisLogger) Printf(_ context.Context, format string, args ...any) {
	r.zap.Debug(fmt.Sprintf(format, args...))
}
