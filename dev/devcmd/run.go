package devcmd

import (
	"context"
	"fmt"
	"io"

	"github.com/redis/go-redis/v9"

	"belay.run/internal/config"
	"belay.run/internal/logs"
	"belay.run/internal/store"
	"belay.run/starter/cli"
)

// runOnce runs one pipeline: the command line checks what it can, boots
// everything when it needs a server, follows the run and takes the signals.
func runOnce(ctx context.Context, f *flags, args []string, out, errOut io.Writer) int {
	var b *boot
	code := cli.Execute(ctx, cli.Options{
		Name: "dev", Out: out, Err: errOut, Embedded: true,
		Connect: func(ctx context.Context) (*cli.Connection, error) {
			var err error
			if b, err = f.start(ctx, true, console{}); err != nil {
				return nil, err
			}
			return b.connection(ctx)
		},
	}, append([]string{"run"}, args...))
	if b != nil {
		if err := b.stop(ctx); err != nil {
			say(errOut, "dev: %v\n", err)
		}
	}
	return code
}

// connection is what the command line needs of a booted environment. It closes
// nothing: the environment's end does.
func (b *boot) connection(ctx context.Context) (*cli.Connection, error) {
	rdb, err := config.NewRedis(b.Settings.RedisURL)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, b.Settings.Store, rdb)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	l := logs.New(st, rdb)
	conn := &cli.Connection{
		Temporal:  b.Temporal.Client(),
		Namespace: b.Temporal.Namespace(),
		Tracing:   b.traces,
		Store:     func(context.Context) (store.Store, error) { return st, nil },
		Logs:      func(context.Context) (*logs.Logs, error) { return l, nil },
		Redis:     func() (redis.UniversalClient, error) { return rdb, nil },
		Close: func() {
			l.Close()
			// Nothing was written that could be lost.
			_ = st.Close()
			_ = rdb.Close()
		},
	}
	if b.UI != nil {
		conn.WebURL = b.UI.URL
	}
	return conn, nil
}
