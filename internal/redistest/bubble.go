package redistest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
)

// Bubble returns a server inside of a synctest bubble, whose time it keeps to, and
// a client of it.
func Bubble(t testing.TB) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) { return dial(server) },
		// It would look its host up, outside the bubble.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return server, rdb
}

func dial(server *miniredis.Miniredis) (net.Conn, error) {
	conn, err := server.Dial()
	if err != nil {
		return nil, err
	}
	c := &roomyConn{Conn: conn, out: make(chan []byte, 1000), done: make(chan struct{})}
	go c.send()
	return c, nil
}

// roomyConn is a connection with room for what is written: without, client and
// server of a long pipeline would each wait until the other reads.
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
