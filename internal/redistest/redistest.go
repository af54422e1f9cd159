// Package redistest starts real Redis servers for tests.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// patience is how long a server may take to answer after its start.
const patience = 10 * time.Second

// Server is a redis-server process that ends with its test.
type Server struct {
	// Addr is host:port, URL the same for REDIS_URL.
	Addr, URL string
	cmd       *exec.Cmd
	args      []string
}

// Start starts a server that keeps nothing on disk. Args are added to its
// command line, such as "--maxmemory", "8mb". Without a redis-server the test
// is skipped, in CI it fails.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	requireRedis(t)
	// Made before Stop is registered, so that it is removed after the server.
	dir := t.TempDir()
	return start(t, append([]string{"--dir", dir, "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"}, args...))
}

func requireRedis(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs redis-server: apt-get install redis-server")
		}
		t.Skip("SKIP: needs redis-server: apt-get install redis-server")
	}
}

// start starts a server on a free port that ends with the test.
func start(t testing.TB, args []string) *Server {
	t.Helper()
	s := &Server{args: args}
	t.Cleanup(func() { s.Stop(t) })
	var err error
	for range 5 { // the free port may be taken before the server binds it
		s.Addr = freeAddr(t)
		s.URL = "redis://" + s.Addr
		if err = s.run(t); err == nil {
			return s
		}
	}
	require.NoError(t, err)
	return s
}

func freeAddr(t testing.TB) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

// run starts the process on the port of Addr and waits until it answers.
func (s *Server) run(t testing.TB) error {
	t.Helper()
	_, port, err := net.SplitHostPort(s.Addr)
	require.NoError(t, err)
	out := &strings.Builder{}
	// Not bound to t.Context(), which ends before the test's cleanups do.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "redis-server",
		append(slices.Clip(s.args), "--port", port)...)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	s.cmd = cmd
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer func() { require.NoError(t, rdb.Close()) }()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		// Another server may have taken the port: only ours has our process id.
		info, err := rdb.Info(t.Context(), "server").Result()
		if err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r", cmd.Process.Pid)) {
			return nil
		}
	}
	s.Stop(t)
	return fmt.Errorf("redis-server on %s does not answer:\n%s", s.Addr, out)
}

// Client connects to the server for the length of the test.
func (s *Server) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

// Pause stops the process without ending it: connections stay open and nothing
// is answered.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGSTOP))
}

// Resume undoes Pause.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))
}

// Stop kills the server; what it held is lost. It is safe to call twice.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if s.cmd == nil {
		return
	}
	require.NoError(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait() // "signal: killed" is what is wanted
	s.cmd = nil
}

// Restart starts a stopped server again on the same address, empty.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	require.NoError(t, s.run(t))
}

// Redialing is what goleak is to let pass where a server was stopped under a
// client: for a second after that is closed go-redis may still wait to dial again.
func Redialing() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
}
