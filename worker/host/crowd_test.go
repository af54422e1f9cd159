package host

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/executor"
	"belay.run/internal/task/types"
)

// saying connects to a server, says something, and returns all that it hears.
func saying(t *testing.T, address, text string) string {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer func() { _ = c.Close() }() // nothing is left to be said
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	heard, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(heard)
}

func TestARequestThatComesTooLateIsAnswered(t *testing.T) {
	t.Parallel()
	l, err := listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	const short = 50 * time.Millisecond
	server := &http.Server{
		ReadHeaderTimeout: short, IdleTimeout: short,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(lateListener{l}) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	address := l.Addr().String()
	require.True(t, strings.HasPrefix(saying(t, address, ""), "HTTP/1.1 408 Request Timeout\r\n"))
	heard := saying(t, address, "GET / HTTP/1.1\r\nHo")
	require.True(t, strings.HasPrefix(heard, "HTTP/1.1 400 Bad Request\r\n"), "net/http says that itself: %s", heard)
	heard = saying(t, address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	require.True(t, strings.HasPrefix(heard, "HTTP/1.1 200 OK\r\n"), heard)
	require.NotContains(t, heard, "408", "it was answered, and is closed in silence")
}

func TestACrowdIsCounted(t *testing.T) {
	t.Parallel()
	e, err := executor.New(executor.Config{Registry: types.Builtin(types.Tools{}), Limits: executor.Limits{Concurrency: 60}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close(t.Context())) })
	c := &crowd{room: 160}
	c.leave(e)
	here, there := net.Pipe()
	t.Cleanup(func() { _ = there.Close() }) // it was closed by the crowd
	arrive := func(n int) {
		for range n {
			c.count(here, http.StateNew)
		}
	}
	arrive(100)
	require.False(t, c.crowded())
	arrive(1)
	require.True(t, c.crowded())
	arrive(fewest - 1)
	require.NoError(t, here.SetDeadline(time.Time{}), "it is still open, to be answered")
	arrive(1)
	require.ErrorIs(t, here.SetDeadline(time.Time{}), io.ErrClosedPipe)
	for range 65 {
		c.count(here, http.StateClosed)
	}
	require.False(t, c.crowded())

	c.room = 60
	c.leave(e)
	require.EqualValues(t, fewest, c.most.Load(), "there is always room for some")
}
