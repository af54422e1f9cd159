// Package ui serves Temporal's web interface.
package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/temporalio/ui-server/v2/server"
	"github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"

	"belay.run/dev/ports"
)

const (
	startTimeout = 10 * time.Second
	pollInterval = 5 * time.Millisecond
)

// Options say what is shown where.
type Options struct {
	// IP is the address to listen on. Defaults to 127.0.0.1.
	IP string

	// Port is the port to listen on. Defaults to a free port.
	Port int

	// Frontend is the Temporal that is shown, as host:port. It need not run yet.
	Frontend string

	// Namespace is shown first.
	Namespace string
}

// Server is a running interface.
type Server struct {
	// URL is where a browser finds it, without a slash at the end.
	URL string

	server *server.Server
	done   chan struct{}
}

// Start serves the interface and returns when it answers.
func Start(ctx context.Context, opts Options) (*Server, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("no answer within 10 seconds"))
	defer cancel()
	ip := cmp.Or(opts.IP, "127.0.0.1")
	port, err := ports.Take(ctx, "Temporal's UI", "--ui-port", ip, opts.Port)
	if err != nil {
		return nil, err
	}
	defer port.Release()
	s := &Server{
		URL:  "http://" + ports.Join(ip, port.Number),
		done: make(chan struct{}),
		server: server.NewServer(server_options.WithConfigProvider(&config.Config{
			TemporalGRPCAddress: opts.Frontend,
			Host:                literal(ip),
			Port:                port.Number,
			EnableUI:            true,
			DefaultNamespace:    opts.Namespace,
			DisableNewsFetch:    true,
			HideLogs:            true,
			// It is served over http.
			CORS: config.CORS{CookieInsecure: true},
		})),
	}
	go func() {
		defer close(s.done)
		_ = s.server.Start() // it returns nil, or ends the process when the port was taken since we looked
	}()
	if err := s.ready(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("starting Temporal's UI at %s: %w", s.URL, err)
	}
	return s, nil
}

// literal is ip as it stands before a port.
func literal(ip string) string {
	if strings.Contains(ip, ":") {
		return "[" + ip + "]"
	}
	return ip
}

func (s *Server) ready(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := s.ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func (s *Server) ask(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/healthz", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("answered %s", resp.Status), resp.Body.Close())
	}
	return resp.Body.Close()
}

// Stop ends the interface and its connections.
func (s *Server) Stop() {
	s.server.Stop()
	<-s.done
}
