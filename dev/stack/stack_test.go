package stack_test

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/dev/ports"
	"belay.run/dev/stack"
)

// TestPortsInUse refuses each port that somebody has, names its flag, and
// leaves nothing running.
func TestPortsInUse(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, busy.Close()) })
	port := portOf(t, busy.Addr())
	for flag, opts := range map[string]stack.Options{
		"--port":       {Port: port, Headless: true},
		"--ui-port":    {UIPort: port},
		"--redis-port": {RedisPort: port, Headless: true},
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			_, err := stack.Start(t.Context(), opts)
			var inUse *ports.InUseError
			require.ErrorAs(t, err, &inUse)
			require.Equal(t, flag, inUse.Flag)
			require.ErrorContains(t, err, fmt.Sprintf("127.0.0.1:%d", port))
		})
	}
}

// TestDataInUse keeps two environments off one directory, and gives it to the
// second when the first has ended.
func TestDataInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := stack.Start(t.Context(), stack.Options{Data: dir, Headless: true})
	require.NoError(t, err)
	_, err = stack.Start(t.Context(), stack.Options{Data: dir, Headless: true})
	require.ErrorContains(t, err, "data directory "+dir+" is in use by another process")
	require.NoError(t, first.Stop(t.Context()))
	require.NoError(t, first.Stop(t.Context()), "again")

	second, err := stack.Start(t.Context(), stack.Options{Data: dir, Headless: true})
	require.NoError(t, err)
	require.NoError(t, second.Stop(t.Context()))
}

// TestTemporaryState leaves nothing of an environment in memory.
func TestTemporaryState(t *testing.T) {
	t.Parallel()
	s, err := stack.Start(t.Context(), stack.Options{})
	require.NoError(t, err)
	require.DirExists(t, s.Dir)
	url := s.UI.URL
	require.NotEmpty(t, url)
	require.NoError(t, s.Stop(t.Context()))
	_, err = os.Stat(s.Dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = net.Dial("tcp", s.Temporal.Address())
	require.Error(t, err)
}

func portOf(t *testing.T, addr net.Addr) int {
	t.Helper()
	tcp, ok := addr.(*net.TCPAddr)
	require.True(t, ok, "%v", addr)
	return tcp.Port
}
