// Package engine gives tests a container engine with an image in it.
package engine

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"belay.run/internal/testkit/need"
)

// Image is the image that the engine has: busybox, with a variable FROM_IMAGE.
const Image = "belay-test/busybox:1"

// Engine is a container engine that tests may use.
type Engine struct {
	*client.Client
	// Address is its socket.
	Address string

	root string
}

// Need demands a container engine with the image.
func Need(tb testing.TB) *Engine {
	tb.Helper()
	address := need.Engine(tb)
	api, err := client.New(client.WithHost(address))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, api.Close()) })
	_, err = api.ImageInspect(context.WithoutCancel(tb.Context()), Image)
	require.NoError(tb, err, "the engine at %s was not started by .ci/engine", address)
	return &Engine{Client: api, Address: address}
}

// script is what starts and restarts engines, from the root of the repository.
const script = ".ci/engine"

// Start starts an engine of the test's own, which it may restart. It demands what
// [Need] does, and Docker's daemon. The path of the root is where the repository
// begins, as seen from the test.
func Start(tb testing.TB, root string) *Engine {
	tb.Helper()
	need.Engine(tb)
	need.Program(tb, "/usr/sbin/dockerd", "apt-get install docker.io")
	said := command(tb, root, "", "start")
	address := strings.TrimPrefix(strings.TrimSpace(said), "export BELAY_TEST_ENGINE=")
	tb.Cleanup(func() { command(tb, root, address, "stop") })
	api, err := client.New(client.WithHost(address))
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, api.Close()) })
	return &Engine{Client: api, Address: address, root: root}
}

// Restart ends the daemon by a signal, TERM or KILL, and starts it again; only that
// of an engine which was started here.
func (e *Engine) Restart(tb testing.TB, signal string) {
	tb.Helper()
	command(tb, e.root, e.Address, "restart", signal)
}

// command runs the script on the engine at an address.
func command(tb testing.TB, root, address string, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), "bash", append([]string{script}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "BELAY_TEST_ENGINE="+address)
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	require.NoError(tb, err, "%s %s: %s", script, strings.Join(args, " "), errOut.String())
	return string(out)
}
