package deploy

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/testkit/need"
)

// script runs the script that starts Redis in the compose file.
func script(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), need.Program(t, "sh", "install a shell"), filepath.Join(root, "deploy/compose/redis.sh"))
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

func TestRedis(t *testing.T) {
	t.Parallel()
	need.Program(t, "redis-server", "apt-get install redis-server")
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port //nolint:errcheck // a TCP listener has no other
	require.NoError(t, l.Close())

	dir := t.TempDir()
	cmd := script(t, "REDIS_PASSWORD=s3cret.-_~", fmt.Sprintf("REDIS_PORT=%d", port), "REDIS_DIR="+dir)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // killed when the test's context ends

	address := fmt.Sprintf("redis://:s3cret.-_~@127.0.0.1:%d/0", port)
	options, err := redis.ParseURL(address)
	require.NoError(t, err)
	c := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.Eventually(t, func() bool { return c.Ping(t.Context()).Err() == nil }, time.Minute, 20*time.Millisecond)
	for name, want := range map[string]string{
		"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "dir": dir,
	} {
		require.Equal(t, want, c.ConfigGet(t.Context(), name).Val()[name])
	}

	options.Password = ""
	anonymous := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, anonymous.Close()) })
	require.ErrorContains(t, anonymous.Ping(t.Context()).Err(), "NOAUTH")

	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
	if err == nil {
		require.NotContains(t, string(args), "s3cret")
	}
}

func TestRedisRefusesAPasswordThatBreaksItsURL(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"", "a b", "p@ss", "x\nmaxmemory 1", `"`, "100%"} {
		out, err := script(t, "REDIS_PASSWORD="+password).CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%q", password)
		require.Contains(t, string(out), "REDIS_PASSWORD", "%q", password)
	}
}
