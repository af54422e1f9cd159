package telemetry

import (
	"fmt"

	"go.temporal.io/sdk/log"
	"go.uber.org/zap"
)

// Temporal adapts l to the logger that Temporal's SDK writes to. A nil l drops
// everything.
func Temporal(l *zap.Logger) log.Logger {
	return temporalLogger{zap: OrNop(l)}
}

// temporalLogger turns the SDK's key and value pairs into zap's fields.
type temporalLogger struct {
	zap *zap.Logger
}

var (
	_ log.Logger     = temporalLogger{}
	_ log.WithLogger = temporalLogger{}
)

func (t temporalLogger) Debug(msg string, keyvals ...any) { t.zap.Debug(msg, fields(keyvals)...) }
func (t temporalLogger) Info(msg string, keyvals ...any)  { t.zap.Info(msg, fields(keyvals)...) }
func (t temporalLogger) Warn(msg string, keyvals ...any)  { t.zap.Warn(msg, fields(keyvals)...) }
func (t temporalLogger) Error(msg string, keyvals ...any) { t.zap.Error(msg, fields(keyvals)...) }

// With returns a logger that adds keyvals to every line.
func (t temporalLogger) With(keyvals ...any) log.Logger {
	return temporalLogger{zap: t.zap.With(fields(keyvals)...)}
}

// ours is a key of the SDK as Belay's own lines have it.
func ours(key string) string {
	switch key {
	case "WorkflowID":
		return "workflow"
	case "RunID":
		return "workflow_run"
	case "Attempt":
		return "attempt"
	case "Error":
		return "error"
	case "Namespace":
		return "namespace"
	case "TaskQueue":
		return "queue"
	case "WorkerID":
		return "worker"
	case "WorkflowType":
		return "workflow_type"
	case "ActivityType":
		return "activity_type"
	case "ActivityID":
		return "activity"
	}
	return key
}

// fields pairs keys with values. A key that is no string is printed as one, and
// a key without a value keeps its place: a log line is never the thing that
// fails.
func fields(keyvals []any) []zap.Field {
	out := make([]zap.Field, 0, (len(keyvals)+1)/2)
	for i := 0; i < len(keyvals); i += 2 {
		key, ok := keyvals[i].(string)
		if !ok {
			key = fmt.Sprint(keyvals[i])
		}
		key = ours(key)
		if i+1 == len(keyvals) {
			out = append(out, zap.String(key, "(no value)"))
			break
		}
		if err, ok := keyvals[i+1].(error); ok {
			out = append(out, zap.NamedError(key, err))
			continue
		}
		out = append(out, zap.Any(key, keyvals[i+1]))
	}
	return out
}
