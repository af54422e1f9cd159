package types

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// talk connects to the target of a probe, encrypted where its URL says so, and
// lets a function talk to it until ctx ends. What goes wrong becomes the probe's
// failure.
func (p *probe) talk(ctx context.Context, say func(c net.Conn, r *bufio.Reader) error) error {
	conn, err := p.tools.Net.Dial(ctx, "tcp", dialAddress(p.url, p.kind.port), p.secure)
	if err != nil {
		return failure(ctx, p.String(), err, p.hidden()...)
	}
	// Whoever waits for an answer is woken when ctx ends.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // of a closed one it says so
	defer func() {
		stop()
		_ = conn.Close() // nothing is left to be said
	}()
	err = say(conn, bufio.NewReaderSize(conn, 4<<10))
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*task.Failure](err); ok && ctx.Err() == nil {
		return f
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the connection was closed before the answer's end")
	}
	return failure(ctx, p.String(), err, p.hidden()...)
}

// unwell is the failure of a service that says of itself that it is not well.
func (p *probe) unwell(format string, args ...any) *task.Failure {
	return task.Faultf("%s: %s", p, safe(fmt.Sprintf(format, args...), p.hidden()...))
}

// refused is the failure of a service that is well and does not take the
// question.
func (p *probe) refused(format string, args ...any) *task.Failure {
	return task.Failf(run.TriggerExitCode, "%s: %s", p, safe(fmt.Sprintf(format, args...), p.hidden()...))
}
