package resource_test

import (
	"bytes"
	"context"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
)

// redisDialer connects to a server inside of a bubble.
func redisDialer(server *miniredis.Miniredis) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		conn, err := server.Dial()
		if err != nil {
			return nil, err
		}
		c := &roomyConn{Conn: conn, out: make(chan []byte, 1000), done: make(chan struct{})}
		go c.send()
		return c, nil
	}
}

// roomyConn is a connection with room for what is written: without, client and
// server would each wait until the other reads.
type roomyConn struct {
	net.Conn
	out  chan []byte
	done chan struct{}
	end  sync.Once
}

func (c *roomyConn) send() {
	for {
		select {
		case p := <-c.out:
			if _, err := c.Conn.Write(p); err != nil {
				return
			}
		case <-c.done:
			return
		}
	}
}

func (c *roomyConn) Write(p []byte) (int, error) {
	select {
	case <-c.done:
		return 0, net.ErrClosed
	case c.out <- bytes.Clone(p):
		return len(p), nil
	}
}

func (c *roomyConn) Close() error {
	c.end.Do(func() { close(c.done) })
	return c.Conn.Close()
}
