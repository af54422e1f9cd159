package outbound

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// conn counts what is written to it, and is counted itself while it is open.
type conn struct {
	net.Conn

	written atomic.Int64
	closed  atomic.Bool
	open    *atomic.Int64
}

// Write counts what was written, also where it broke off.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err //nolint:wrapcheck // what reads it goes by the connection's own errors
}

// Close counts it out, once.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) {
		c.open.Add(-1)
	}
	return err //nolint:wrapcheck // as above
}

// dial connects. Where as many connections are open as may, those that are idle
// make room: to many hosts they would use up the files of the process.
func (n *Net) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if n.open.Add(1) > int64(n.config.Files) {
		n.transport.Load().CloseIdleConnections()
	}
	c, err := n.dialer.DialContext(ctx, network, address)
	if err != nil {
		n.open.Add(-1)
		return nil, err //nolint:wrapcheck // it says what it did
	}
	return &conn{Conn: c, open: &n.open}, nil
}

// sending is a request on its way. When a connection that was kept breaks off in
// place of an answer, net/http sends the request once more on another and says so
// to nobody: a target may have it twice.
type sending struct {
	again func()
	// on is the connection that it went on last, and before how much had been
	// written there by then.
	on     *conn
	before int64
}

// moved says that it goes on, elsewhere: after a redirect.
func (s *sending) moved() { s.on = nil }

// got hears of each connection that the request goes on.
func (s *sending) got(info httptrace.GotConnInfo) {
	if s.on != nil && s.on.written.Load() > s.before {
		s.again()
	}
	under := info.Conn
	if encrypted, ok := under.(*tls.Conn); ok {
		under = encrypted.NetConn()
	}
	if s.on, _ = under.(*conn); s.on != nil {
		s.before = s.on.written.Load()
	}
}
