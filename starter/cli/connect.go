package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/user"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.temporal.io/sdk/client"

	"belay.run/internal/config"
	"belay.run/internal/logs"
	"belay.run/internal/resource"
	"belay.run/internal/seal"
	"belay.run/internal/secret"
	"belay.run/internal/store"
	"belay.run/internal/tracing"
	"belay.run/starter/runs"
)

const (
	// dialPatience is how long Temporal has to answer at all.
	dialPatience = 5 * time.Second
	// webVariable names the address of Temporal's UI.
	webVariable = "TEMPORAL_UI_URL"
	// localWeb is that of the UI beside a Temporal on this machine.
	localWeb = "http://127.0.0.1:8233"
)

// Connection is what the commands need of a running Belay.
type Connection struct {
	Temporal client.Client
	// Namespace is Temporal's.
	Namespace string
	// WebURL is the address of Temporal's UI; empty where none is known.
	WebURL string
	// Store opens the store. It is asked only by commands that need it, and may
	// be asked more than once.
	Store func(ctx context.Context) (store.Store, error)
	// Logs opens the logs, as Store does the store.
	Logs func(ctx context.Context) (*logs.Logs, error)
	// Redis is a client of the Redis that keeps claims and the audit, nil where
	// none is configured. It is not connected yet. The field may be nil.
	Redis func() (redis.UniversalClient, error)
	// Tracing takes the spans of commands that start something; nil: none are
	// recorded.
	Tracing *tracing.Tracing
	// Close ends what was opened; it may be nil.
	Close func()
}

// runs reads runs over the connection.
func (c *Connection) runs() *runs.Client {
	r := runs.New(c.Temporal, c.Namespace, c.WebURL)
	if c.Redis == nil {
		return r
	}
	return r.WithLedger(func() (*resource.Ledger, error) {
		rdb, err := c.Redis()
		return resource.NewLedger(rdb), err
	})
}

// connect opens the connection of a command, and returns what closes it.
func (a *app) connect(ctx context.Context) (*Connection, func(), error) {
	open := a.Connect
	if open == nil {
		open = a.fromEnvironment
	}
	conn, err := open(ctx)
	if err != nil {
		return nil, nil, err
	}
	if conn.Close == nil {
		return conn, func() {}, nil
	}
	return conn, conn.Close, nil
}

// fromEnvironment connects to what Temporal's environment configuration,
// REDIS_URL and BELAY_STORE describe. Redis and the store are opened when asked
// for.
func (a *app) fromEnvironment(ctx context.Context) (*Connection, error) {
	settings, err := config.FromEnvironment(os.LookupEnv)
	if err != nil {
		return nil, &ExitError{Code: ExitUsage, Err: err}
	}
	codec, err := payloadCodec(ctx, settings)
	if err != nil {
		return nil, &ExitError{Code: ExitUsage, Err: err}
	}
	temporal, err := config.DialTemporal(ctx, config.TemporalOptions{
		Identity: whoami(), Patience: dialPatience, Codec: codec, APIKeyFile: settings.TemporalAPIKeyFile,
	})
	if err != nil {
		return nil, err
	}
	l, traces := &lazy{settings: settings}, a.openTracing(ctx)
	return &Connection{
		Temporal:  temporal,
		Namespace: temporal.Namespace,
		WebURL:    webURL(temporal.Address),
		Store:     l.openStore,
		Logs:      l.openLogs,
		Redis:     l.openRedis,
		Tracing:   traces,
		Close: func() { //nolint:contextcheck // what is open outlives what the command waits for
			l.close()
			traces.Close(traceFlush)
			temporal.Close()
		},
	}, nil
}

// payloadCodec reads the keys, if any are named.
func payloadCodec(ctx context.Context, settings *config.Config) (*seal.Codec, error) {
	secrets, err := secret.Open(settings.Secrets...)
	if err != nil {
		return nil, fmt.Errorf("BELAY_SECRETS: %w", err)
	}
	return settings.PayloadCodec(ctx, secrets)
}

// webURL is the address of the UI that belongs to a Temporal.
func webURL(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	local := ""
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		local = localWeb
	}
	return cmp.Or(os.Getenv(webVariable), local)
}

// lazy opens Redis, the store and the logs at their first use.
type lazy struct {
	settings *config.Config

	mu    sync.Mutex
	store store.Store
	logs  *logs.Logs
	main  redis.UniversalClient
	redis []redis.UniversalClient
	// closers are called when all is closed.
	closers []func()
}

// onClose has something closed with the rest.
func (l *lazy) onClose(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closers = append(l.closers, f)
}

func (l *lazy) openRedis() (redis.UniversalClient, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mainLocked()
}

func (l *lazy) mainLocked() (redis.UniversalClient, error) {
	if l.main != nil {
		return l.main, nil
	}
	var err error
	l.main, err = l.dial(l.settings.RedisURL)
	return l.main, err
}

func (l *lazy) openStore(ctx context.Context) (store.Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.storeLocked(ctx)
}

func (l *lazy) storeLocked(ctx context.Context) (store.Store, error) {
	if l.store != nil {
		return l.store, nil
	}
	rdb, err := l.mainLocked()
	if err != nil {
		return nil, err
	}
	st, err := store.OpenLate(ctx, l.settings.Store, rdb) // who only looks makes no directory
	if err != nil {
		return nil, &ExitError{Code: ExitUsage, Err: fmt.Errorf("BELAY_STORE: %w", err)}
	}
	l.store = st
	return st, nil
}

func (l *lazy) openLogs(ctx context.Context) (*logs.Logs, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logs != nil {
		return l.logs, nil
	}
	st, err := l.storeLocked(ctx)
	if err != nil {
		return nil, err
	}
	rdb, err := l.dial(l.settings.RedisLogsURL)
	if err != nil {
		return nil, err
	}
	l.logs = logs.New(st, rdb)
	return l.logs, nil
}

// dial makes a client of Redis, nil where none is configured.
func (l *lazy) dial(url string) (redis.UniversalClient, error) {
	rdb, err := config.NewRedis(url)
	if err != nil {
		return nil, &ExitError{Code: ExitUsage, Err: fmt.Errorf("REDIS_URL: %w", err)}
	}
	if rdb != nil {
		l.redis = append(l.redis, rdb)
	}
	return rdb, nil
}

// close ends what was opened. Nothing was written that could be lost.
func (l *lazy) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logs != nil {
		l.logs.Close()
	}
	if l.store != nil {
		_ = l.store.Close()
	}
	for _, rdb := range l.redis {
		_ = rdb.Close()
	}
	for _, f := range l.closers {
		f()
	}
}

// whoami is user@host, as histories and causes name who asked.
func whoami() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return name + "@" + host
}
