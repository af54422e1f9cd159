// Package container runs steps and services in containers, through the Docker
// Engine API, which Podman speaks too.
//
// The container of a step is held by a process of its own, the client: Belay's
// own program, started once more, by the supervisor that every step has. It
// creates the container, streams its output, ends it when it is itself told to
// end, and removes it. So a step in a container is a process tree like any
// other for the worker: logs, masks, grace periods, cancels and the death of
// the worker need no second way. What a killed client leaves is removed by the
// worker, by names and labels that are known beforehand.
package container

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"go.uber.org/zap"
)

const (
	// answerBound is how long an engine may take to say that it is there.
	answerBound = 5 * time.Second
	// callBound bounds one call to an engine; creating a container under load
	// takes seconds.
	callBound = time.Minute
)

// ErrUnavailable says that the engine cannot be reached.
var ErrUnavailable = errors.New("the container engine cannot be reached")

// Policy is what containers on a host may have beyond the ordinary.
type Policy struct {
	// Mounts are folders of the host that a file may mount, with all below.
	Mounts []string
	// Privileged allows containers that the file wants privileged.
	Privileged bool
}

// Options say which engine a host has and what it may be used for.
type Options struct {
	// Address is the engine's socket, as unix:///path. Required: an engine that
	// is reached by a network has not the workspaces that it is to mount.
	Address string
	// HostID tells the containers of this host from others'. Required.
	HostID string
	// RegistryConfig is a file in the form of docker's config.json with the
	// logins of registries. Defaults to none.
	RegistryConfig string
	Policy         Policy
	// Log defaults to one that says nothing.
	Log *zap.Logger
}

// Host is the engine of this machine as this worker uses it. It is safe for
// concurrent use.
type Host struct {
	opts Options
	api  *client.Client

	mu sync.Mutex
	// inUse are the names of containers whose attempts run in this process.
	inUse map[string]int
}

// New prepares to use an engine. It need not be there yet.
func New(o Options) (*Host, error) {
	if o.HostID == "" {
		return nil, errors.New("using a container engine: the host has no id")
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	api, err := connect(o.Address)
	if err != nil {
		return nil, err
	}
	return &Host{opts: o, api: api, inUse: map[string]int{}}, nil
}

// CheckAddress says what is wrong with the address of an engine.
func CheckAddress(address string) error {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return fmt.Errorf("%q: want the engine's socket as unix:///path/to/docker.sock", address)
	}
	return nil
}

func connect(address string) (*client.Client, error) {
	if err := CheckAddress(address); err != nil {
		return nil, fmt.Errorf("using a container engine: %w", err)
	}
	api, err := client.New(client.WithHost(address), client.WithUserAgent("belay"))
	if err != nil {
		return nil, fmt.Errorf("using the container engine at %s: %w", address, err)
	}
	return api, nil
}

// Close lets go of the connection. Containers stay.
func (h *Host) Close() error {
	if err := h.api.Close(); err != nil {
		return fmt.Errorf("closing the connection to the container engine: %w", err)
	}
	return nil
}

// Address is the engine's socket.
func (h *Host) Address() string { return h.opts.Address }

// Ping reports whether the engine answers, [ErrUnavailable] where not.
func (h *Host) Ping(ctx context.Context) error { return ping(ctx, h.api) }

func ping(ctx context.Context, api *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	if _, err := api.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// Use marks a container's name as one of an attempt that runs here, which no
// sweep touches, until the function it returns is called.
func (h *Host) Use(name string) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inUse[name]++
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.inUse[name]--; h.inUse[name] == 0 {
			delete(h.inUse, name)
		}
	})
}

func (h *Host) used(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inUse[name] > 0
}
