// Package engine gives tests a container engine with an image in it.
package engine

import (
	"context"
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
