// Package redisd gives a development environment its Redis: a redis-server
// child process, where there is none on the path one that lives in this
// process, or somebody else's.
package redisd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"belay.run/dev/ports"
	"belay.run/internal/config"
)

// loopback is where Redis listens: it has no password, so nothing else may
// reach it.
const loopback = "127.0.0.1"

const startTimeout = 10 * time.Second

// Kind says which Redis it is.
type Kind string

// The kinds of Redis.
const (
	External Kind = "external"
	Child    Kind = "redis-server"
	Embedded Kind = "embedded"
)

// Options say which Redis to use. The zero value is one in memory on a free
// port of the loopback interface.
type Options struct {
	// URL names a Redis that runs already: nothing is started then.
	URL string

	// Port is where the started Redis listens. Defaults to a free port.
	Port int

	// Dir keeps the state of a redis-server over restarts. Defaults to memory.
	Dir string

	// Program is the redis-server to run. Defaults to the one on the path; an
	// absent one means the embedded Redis.
	Program string
}

// Server is a Redis that answers.
type Server struct {
	// URL is how to reach it.
	URL string
	// Kind says which it is.
	Kind Kind
	// Note is what a person should know about it; often empty.
	Note string
	// PID is its process, 0 where it has none that was started here.
	PID int

	stop func() error
}

// Start starts what opts say and returns when it answers.
func Start(ctx context.Context, opts Options) (*Server, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("no answer within 10 seconds"))
	defer cancel()
	if opts.URL != "" {
		return external(ctx, opts.URL)
	}
	port, err := ports.Take(ctx, "Redis", "--redis-port", loopback, opts.Port)
	if err != nil {
		return nil, err
	}
	defer port.Release()
	addr := ports.Join(loopback, port.Number)
	program, err := exec.LookPath(cmp.Or(opts.Program, "redis-server"))
	switch {
	case err == nil:
		return child(ctx, program, addr, opts.Dir)
	case opts.Program != "":
		return nil, fmt.Errorf("finding redis-server: %w", err)
	}
	return embedded(addr)
}

// Stop ends what Start started. A redis-server has its state on the disk then.
func (s *Server) Stop() error {
	if s.stop == nil {
		return nil
	}
	return s.stop()
}

// external makes sure that a Redis which runs already answers.
func external(ctx context.Context, url string) (*Server, error) {
	c, err := config.NewRedis(url)
	if err != nil {
		return nil, fmt.Errorf("reading the Redis URL: %w", err)
	}
	if err := config.PingRedis(ctx, c, url); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Server{URL: url, Kind: External}, c.Close()
}
