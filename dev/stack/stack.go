// Package stack boots everything that Belay needs in one process: Temporal, its
// UI and Redis, all at once.
package stack

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"belay.run/dev/devserver"
	"belay.run/dev/ports"
	"belay.run/dev/redisd"
	"belay.run/dev/ui"
)

// Options say what is booted and where it listens. The zero value is a stack in
// memory on free ports of the loopback interface.
type Options struct {
	// IP is the address that Temporal and its UI listen on. Redis has no
	// password and stays on the loopback interface. Defaults to 127.0.0.1.
	IP string

	// Port, UIPort and RedisPort are where the three listen. Default to free
	// ports.
	Port, UIPort, RedisPort int

	// Headless leaves out the UI.
	Headless bool

	// Data is the directory that keeps the state. Defaults to memory.
	Data string

	// RedisURL names a Redis that runs already.
	RedisURL string

	// Server is what else the Temporal server is told; its IP, Port and Dir
	// are those above.
	Server devserver.Options

	// Log takes what the servers have to say. Defaults to nothing.
	Log *zap.Logger
}

// Stack is everything that was booted.
type Stack struct {
	Temporal *devserver.Server
	Redis    *redisd.Server
	// UI is nil where it was left out.
	UI *ui.Server
	// Dir holds the state of what else is started, and goes with the stack if
	// there is no data directory.
	Dir string

	dir  *dir
	once sync.Once
	err  error
}

// Start boots everything at once and returns when all of it answers. If one
// part cannot start, those that did are stopped.
func Start(ctx context.Context, opts Options) (*Stack, error) {
	d, err := openDir(opts.Data)
	if err != nil {
		return nil, err
	}
	s := &Stack{Dir: d.path, dir: d}
	if err := s.boot(ctx, opts); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Stack) boot(ctx context.Context, opts Options) error {
	// Found here, since the UI starts beside the server that it shows.
	ip := cmp.Or(opts.IP, "127.0.0.1")
	port, err := ports.Take(ctx, "Temporal", "--port", ip, opts.Port)
	if err != nil {
		return err
	}
	server := opts.Server
	server.IP, server.Port, server.Dir = ip, port, s.dir.durable("temporal")
	server.Namespace = cmp.Or(server.Namespace, "default")
	server.Log = cmp.Or(server.Log, opts.Log)

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		s.Temporal, err = devserver.Start(ctx, server)
		return err
	})
	g.Go(func() (err error) {
		s.Redis, err = redisd.Start(ctx, redisd.Options{
			URL: opts.RedisURL, Port: opts.RedisPort, Dir: s.dir.durable("redis"),
		})
		return err
	})
	if !opts.Headless {
		g.Go(func() (err error) {
			s.UI, err = ui.Start(ctx, ui.Options{
				IP: ip, Port: opts.UIPort, Frontend: ports.Join(ip, port), Namespace: server.Namespace,
			})
			return err
		})
	}
	return g.Wait()
}

// Stop stops everything and returns when it is gone. It may be called twice.
func (s *Stack) Stop() error {
	s.once.Do(func() { s.err = s.stop() })
	return s.err
}

func (s *Stack) stop() error {
	if s.UI != nil {
		s.UI.Stop()
	}
	errs := make([]error, 3)
	var wg sync.WaitGroup
	if s.Temporal != nil {
		wg.Go(func() { errs[0] = s.Temporal.Stop() })
	}
	if s.Redis != nil {
		wg.Go(func() { errs[1] = s.Redis.Stop() })
	}
	wg.Wait()
	errs[2] = s.dir.close()
	return errors.Join(errs...)
}
