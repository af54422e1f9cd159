package host

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"belay.run/internal/executor"
	"belay.run/internal/nofile"
)

// fewest is how many connections the HTTP server has room for at least, and how
// many beyond its room it answers that there is none.
const fewest = 64

// crowd bounds the connections of the HTTP server, so that they leave light tasks
// the files that those may need.
type crowd struct {
	room       int
	most, open atomic.Int64
}

func newCrowd() *crowd {
	c := &crowd{room: nofile.Room()}
	c.most.Store(int64(c.room))
	return c
}

// leave leaves an executor the files for all that it may run.
func (c *crowd) leave(e *executor.Executor) {
	c.most.Store(int64(max(fewest, c.room-e.Status().Limit)))
}

// crowded reports whether there are more than may be.
func (c *crowd) crowded() bool { return c.open.Load() > c.most.Load() }

// count is for [http.Server]. It closes what is too much even to be answered.
func (c *crowd) count(conn net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		if c.open.Add(1) > c.most.Load()+fewest {
			_ = conn.Close() // nothing was said on it
		}
	case http.StateClosed, http.StateHijacked:
		c.open.Add(-1)
	case http.StateActive, http.StateIdle:
	}
}

// lateListener accepts connections on which a request that does not come in time
// is answered by that: net/http would close them without a word.
type lateListener struct{ net.Listener }

func (l lateListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // the server goes by it
	}
	return &lateConn{Conn: c}, nil
}

type lateConn struct {
	net.Conn

	late, answered atomic.Bool
}

func (c *lateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.late.Store(true)
	}
	return n, err //nolint:wrapcheck // the server goes by it
}

func (c *lateConn) Write(b []byte) (int, error) {
	c.answered.Store(true)
	return c.Conn.Write(b) //nolint:wrapcheck // likewise
}

func (c *lateConn) Close() error {
	if c.late.Load() && !c.answered.Swap(true) {
		// A client that takes nothing is closed all the same.
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(c.Conn, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	}
	return c.Conn.Close() //nolint:wrapcheck // likewise
}
