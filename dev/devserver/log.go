package devserver

import (
	"errors"
	"fmt"
	"runtime"

	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
	"go.uber.org/zap"
)

// serverLog is the server's logger. The server ends its process by a fatal log
// line, also for things like a port in use; embedded, it must not take the
// process with it. Fatal hands the reason over and ends only the calling
// goroutine, which the server's start notices.
type serverLog struct {
	log.Logger
	fatal chan<- error
}

func newServerLog(l *zap.Logger, fatal chan<- error) serverLog {
	return serverLog{Logger: log.NewZapLogger(l), fatal: fatal}
}

// Fatal reports msg as the reason why the server cannot go on and does not
// return.
func (l serverLog) Fatal(msg string, tags ...tag.Tag) {
	l.Error(msg, tags...)
	for _, t := range tags {
		if t.Key() == "error" {
			msg = fmt.Sprintf("%s: %v", msg, t.Value())
		}
	}
	select {
	case l.fatal <- errors.New(msg):
	default: // the first reason counts
	}
	runtime.Goexit()
}
