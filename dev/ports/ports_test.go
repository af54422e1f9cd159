package ports_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/dev/ports"
	"belay.run/internal/testkit/need"
)

func TestTakeFree(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{"127.0.0.1", "0.0.0.0"} {
		p, err := ports.Take(t.Context(), "it", "--port", ip, 0)
		require.NoError(t, err)
		again, err := ports.Take(t.Context(), "it", "--port", ip, p.Number)
		require.NoError(t, err, "who names it gets it")
		again.Release()
		l := listen(t, ip, p.Number)
		p.Release()
		p.Release()
		require.NoError(t, l.Close())
	}
}

// TestKept opens very many connections: none of them leaves from a port that is
// kept, as one would from a port that was only found free.
func TestKept(t *testing.T) {
	t.Parallel()
	need.Linux(t)
	const kept, connections = 200, 4000
	server := listen(t, "127.0.0.1", 0)
	taken := map[int]bool{}
	for range kept {
		p, err := ports.Take(t.Context(), "it", "", "127.0.0.1", 0)
		require.NoError(t, err)
		require.False(t, taken[p.Number], "taken twice")
		taken[p.Number] = true
		defer p.Release()
	}
	for range connections {
		c, err := net.Dial("tcp", server.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.False(t, taken[portOf(t, c.LocalAddr())])
		in, err := server.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = in.Close() })
	}
}

func TestInUse(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1", 0)
	port := portOf(t, l.Addr())
	_, err := ports.Take(t.Context(), "Redis", "--redis-port", "127.0.0.1", port)
	var inUse *ports.InUseError
	require.ErrorAs(t, err, &inUse)
	require.EqualError(t, err, "Redis cannot listen on "+l.Addr().String()+
		": the port is in use; end what listens there, or choose another port with --redis-port (0 takes a free one)")
}

func TestNoAddress(t *testing.T) {
	t.Parallel()
	for _, port := range []int{0, 1234} {
		_, err := ports.Take(t.Context(), "it", "--port", "203.0.113.7", port) // nobody's
		require.Error(t, err)
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	require.Equal(t, "127.0.0.1:80", ports.Join("0.0.0.0", 80))
	require.Equal(t, "127.0.0.1:80", ports.Join("::", 80))
	require.Equal(t, "[::1]:80", ports.Join("::1", 80))
}

func listen(t *testing.T, ip string, port int) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func portOf(t *testing.T, addr net.Addr) int {
	t.Helper()
	tcp, ok := addr.(*net.TCPAddr)
	require.True(t, ok, "%v", addr)
	return tcp.Port
}
