package redisd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/dev/ports"
	"belay.run/dev/redisd"
	"belay.run/internal/redistest"
	"belay.run/internal/testkit/need"
)

const remedy = "apt-get install redis-server"

// parentEnv makes the test binary a parent that starts a redis-server, says
// where, and waits to be killed.
const parentEnv = "BELAY_TEST_REDIS_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		os.Exit(parent())
	}
	goleak.VerifyTestMain(m, redistest.Redialing())
}

func parent() int {
	s, err := redisd.Start(context.Background(), redisd.Options{})
	if err != nil {
		return 1
	}
	if _, err := fmt.Fprintln(os.Stdout, s.URL); err != nil {
		return 1
	}
	select {}
}

func TestChildKeepsItsState(t *testing.T) {
	t.Parallel()
	need.Program(t, "redis-server", remedy)
	dir := t.TempDir()

	first := start(t, redisd.Options{Dir: dir})
	require.Equal(t, redisd.Child, first.Kind)
	require.Empty(t, first.Note)
	require.NoError(t, dial(t, first.URL).Set(t.Context(), "key", "value", 0).Err())
	require.NoError(t, first.Stop())
	require.NoError(t, first.Stop(), "again")

	second := start(t, redisd.Options{Dir: dir})
	value, err := dial(t, second.URL).Get(t.Context(), "key").Result()
	require.NoError(t, err)
	require.Equal(t, "value", value)
}

func TestChildDiesWithItsParent(t *testing.T) {
	t.Parallel()
	need.Linux(t)
	need.Program(t, "redis-server", remedy)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	url, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	c := dial(t, strings.TrimSpace(url))
	require.NoError(t, c.Ping(t.Context()).Err(), url)

	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() != nil },
		10*time.Second, 10*time.Millisecond, "redis-server outlives its parent")
}

// TestChildBehindAScript ends the redis-server that a script on the path runs,
// which has written its state by then, and one that never answers.
func TestChildBehindAScript(t *testing.T) {
	t.Parallel()
	need.Program(t, "redis-server", remedy)
	program, err := exec.LookPath("redis-server")
	require.NoError(t, err)
	t.Run("answers", func(t *testing.T) {
		t.Parallel()
		opts := redisd.Options{Dir: t.TempDir(), Program: script(t, program+` "$@"; exit $?`)}
		first := start(t, opts)
		c := dial(t, first.URL)
		require.NoError(t, c.Set(t.Context(), "key", "value", 0).Err())
		require.NoError(t, first.Stop())
		require.Error(t, c.Ping(t.Context()).Err(), "it outlives its stop")
		require.Equal(t, "value", dial(t, start(t, opts).URL).Get(t.Context(), "key").Val())
	})
	t.Run("does not answer", func(t *testing.T) {
		t.Parallel()
		began := filepath.Join(t.TempDir(), "began")
		ctx, cancel := context.WithCancelCause(t.Context())
		program := script(t, "touch "+began+"; sleep 1000; exit 1")
		ended := make(chan error, 1)
		go func() {
			_, err := redisd.Start(ctx, redisd.Options{Program: program})
			ended <- err
		}()
		require.Eventually(t, func() bool { _, err := os.Stat(began); return err == nil }, time.Minute, time.Millisecond)
		cancel(errors.New("asked to stop"))
		err := <-ended
		require.ErrorContains(t, err, "asked to stop")
		require.NotContains(t, err.Error(), "was killed")
	})
}

// script is a program of one line of shell.
func script(t *testing.T, line string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "redis-server")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+line+"\n"), 0o700))
	return path
}

func TestEmbedded(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // where no redis-server is
	s := start(t, redisd.Options{})
	require.Equal(t, redisd.Embedded, s.Kind)
	require.Contains(t, s.Note, "lost")
	c := dial(t, s.URL)
	require.NoError(t, c.Set(t.Context(), "key", "value", 50*time.Millisecond).Err())
	require.Eventually(t, func() bool { return c.Exists(t.Context(), "key").Val() == 0 },
		10*time.Second, 10*time.Millisecond, "keys expire by themselves")
}

func TestExternal(t *testing.T) {
	t.Parallel()
	need.Program(t, "redis-server", remedy)
	theirs := start(t, redisd.Options{})
	ours := start(t, redisd.Options{URL: theirs.URL})
	require.Equal(t, redisd.External, ours.Kind)
	require.NoError(t, ours.Stop())
	require.NoError(t, dial(t, theirs.URL).Ping(t.Context()).Err(), "it is not ours to stop")
}

func TestErrors(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, busy.Close()) })
	port := portOf(t, busy.Addr())
	free, err := ports.Take(t.Context(), "nobody", "", "127.0.0.1", 0)
	require.NoError(t, err)
	t.Cleanup(free.Release)

	for name, tc := range map[string]struct {
		opts redisd.Options
		want string
	}{
		"port in use":      {redisd.Options{Port: port}, fmt.Sprintf("127.0.0.1:%d: the port is in use", port)},
		"no URL":           {redisd.Options{URL: "localhost"}, "want redis://"},
		"nobody there":     {redisd.Options{URL: fmt.Sprintf("redis://127.0.0.1:%d", free.Number)}, "cannot use Redis at redis://127.0.0.1"},
		"no such program":  {redisd.Options{Program: "/nowhere/redis-server"}, "finding redis-server"},
		"another program":  {redisd.Options{Program: "false"}, "it ended (exit status 1)"},
		"useless data dir": {redisd.Options{Dir: "/dev/null/x"}, "creating the directory of Redis"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := redisd.Start(t.Context(), tc.opts)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func start(t *testing.T, opts redisd.Options) *redisd.Server {
	t.Helper()
	s, err := redisd.Start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

func dial(t *testing.T, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	require.NoError(t, err)
	c := redis.NewClient(opts)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func portOf(t *testing.T, addr net.Addr) int {
	t.Helper()
	tcp, ok := addr.(*net.TCPAddr)
	require.True(t, ok, "%v", addr)
	return tcp.Port
}
