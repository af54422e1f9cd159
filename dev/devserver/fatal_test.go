package devserver

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/primitives"
)

// TestFatal makes the server find something that it would end the process for:
// a port that is taken between the look and the start.
func TestFatal(t *testing.T) {
	t.Parallel()
	opts := Options{}.withDefaults()
	ports, err := plan(t.Context(), loopback, 0)
	require.NoError(t, err)
	defer ports.release()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, busy.Close()) }()
	tcp, ok := busy.Addr().(*net.TCPAddr)
	require.True(t, ok)
	ports.services[string(primitives.HistoryService)] = config.Service{
		RPC: config.RPC{GRPCPort: tcp.Port, BindOnIP: loopback},
	}

	s := &Server{fatal: make(chan error, 1)}
	err = s.boot(t.Context(), opts, ports)
	require.ErrorContains(t, err, "starting Temporal: Failed to start gRPC listener")
	require.ErrorContains(t, err, "address already in use")
}
