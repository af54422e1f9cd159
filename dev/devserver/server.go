// Package devserver runs a whole Temporal server inside the process: all four
// services, SQLite in memory or in a directory, tuned for a single machine.
package devserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/temporal"
	"go.uber.org/zap"

	"belay.run/internal/seal"
	"belay.run/internal/tracing"
)

// Options say how a server runs. The zero value is one in memory on a free
// port of the loopback interface.
type Options struct {
	// IP is the address that the frontend listens on. Defaults to 127.0.0.1.
	IP string

	// Port is the frontend's port; the other services always take free ones
	// on the loopback interface. Defaults to a free port.
	Port int

	// Dir holds the state in a file. One server at a time may use it; that is
	// for the caller to see to. Defaults to memory.
	Dir string

	// Namespace is created with Belay's search attributes where it is
	// missing. Defaults to "default".
	Namespace string

	// Retention is how long a new namespace keeps closed workflows. Defaults
	// to seven days.
	Retention time.Duration

	// Config is the dynamic configuration. Defaults to [Preset].
	Config dynamicconfig.StaticClient

	// Codec seals what clients of the server send. Defaults to one that seals
	// nothing.
	Codec *seal.Codec

	// Log takes what the server has to say. Defaults to nothing.
	Log *zap.Logger
}

func (o Options) withDefaults() Options {
	o.IP = cmp.Or(o.IP, loopback)
	o.Namespace = cmp.Or(o.Namespace, "default")
	o.Retention = cmp.Or(o.Retention, 7*24*time.Hour)
	o.Log = cmp.Or(o.Log, zap.NewNop())
	o.Codec = cmp.Or(o.Codec, new(seal.Codec))
	if o.Config == nil {
		o.Config = Preset()
	}
	return o
}

const (
	startTimeout = 30 * time.Second
	stopTimeout  = time.Minute
)

// Server is a running Temporal server.
type Server struct {
	server    temporal.Server
	client    client.Client
	address   string
	namespace string
	codec     *seal.Codec
	fatal     chan error
}

// Start starts a server and returns when it serves the namespace. It gives up
// when ctx ends, and after 30 seconds.
func Start(ctx context.Context, opts Options) (*Server, error) {
	opts = opts.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("not ready within 30 seconds"))
	defer cancel()
	if err := checkIP(opts.IP); err != nil {
		return nil, err
	}
	ports, err := plan(ctx, opts.IP, opts.Port)
	if err != nil {
		return nil, err
	}
	defer ports.release()
	s := &Server{address: ports.frontend, namespace: opts.Namespace, codec: opts.Codec, fatal: make(chan error, 1)}
	if err := s.boot(ctx, opts, ports); err != nil {
		return nil, err
	}
	if err := s.connect(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// boot starts the services. The server's own start takes no context, so it runs
// beside; one that ends after ctx did is stopped again.
func (s *Server) boot(ctx context.Context, opts Options, ports *layout) error {
	type outcome struct {
		server temporal.Server
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		// A fatal error of the server ends this goroutine, hence the defer. It
		// may do so by a panic: parts of the server turn one into the other.
		out := outcome{err: errors.New("the server gave up")}
		defer func() {
			if p := recover(); p != nil {
				out.err = fmt.Errorf("the server panicked: %v", p)
			}
			select {
			case err := <-s.fatal:
				out.err = err
			default:
			}
			done <- out
		}()
		out.server, out.err = start(opts, ports, s.fatal)
	}()
	select {
	case out := <-done:
		if out.err != nil {
			return fmt.Errorf("starting Temporal: %w", out.err)
		}
		s.server = out.server
		return nil
	case <-ctx.Done():
		go func() {
			if out := <-done; out.err == nil {
				_ = out.server.Stop() // nobody waits for it any more
			}
		}()
		return fmt.Errorf("starting Temporal: %w", context.Cause(ctx))
	}
}

func start(opts Options, ports *layout, fatal chan<- error) (temporal.Server, error) {
	db, err := openDatabase(opts.Dir)
	if err != nil {
		return nil, err
	}
	if err := createNamespace(db, opts.Namespace, opts.Retention); err != nil {
		return nil, err
	}
	server, err := temporal.NewServer(
		temporal.WithConfig(ports.config(db)),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(ports.hosts()),
		temporal.WithDynamicConfigClient(opts.Config),
		temporal.WithLogger(newServerLog(opts.Log, fatal)),
		temporal.WithCustomMetricsHandler(metrics.NoopMetricsHandler),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
	)
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return server, nil
}

// connect makes the server's own client and sees that the namespace is whole.
func (s *Server) connect(ctx context.Context) error {
	c, err := s.Dial(ctx, client.Options{})
	if err != nil {
		return err
	}
	s.client = c
	return ensureAttributes(ctx, c, s.namespace)
}

// Dial returns a further client with options of its own; address and namespace
// are the server's. The caller closes it.
func (s *Server) Dial(ctx context.Context, opts client.Options) (client.Client, error) {
	opts.HostPort, opts.Namespace = s.address, s.namespace
	// Compressing what stays inside the process costs CPU for nothing.
	opts.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{}
	if opts.Logger == nil {
		opts.Logger = sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))
	}
	s.codec.Apply(&opts)
	opts.Interceptors = append(opts.Interceptors, tracing.Client())
	c, err := client.DialContext(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("connecting to Temporal at %s: %w", s.address, err)
	}
	return c, nil
}

// Client is the server's own client of its namespace. It is closed by [Server.Stop].
func (s *Server) Client() client.Client { return s.client }

// Address is where the frontend can be called: host:port.
func (s *Server) Address() string { return s.address }

// Namespace is the namespace of [Server.Client].
func (s *Server) Namespace() string { return s.namespace }

// Codec is what the server's clients seal with.
func (s *Server) Codec() *seal.Codec { return s.codec }

// Fatal delivers the reason when the running server cannot go on.
func (s *Server) Fatal() <-chan error { return s.fatal }

// Stop closes the client and stops the server. What is in a data directory is
// on the disk when it returns. It gives up waiting after a minute.
func (s *Server) Stop() error {
	if s.client != nil {
		s.client.Close()
	}
	done := make(chan error, 1)
	go func() { done <- s.server.Stop() }()
	select {
	case err := <-done:
		return err
	case <-time.After(stopTimeout):
		return fmt.Errorf("stopping Temporal: not done within %s", stopTimeout)
	}
}
