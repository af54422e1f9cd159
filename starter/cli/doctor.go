package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"belay.run/internal/config"
	"belay.run/internal/store"
	"belay.run/internal/tree"
	"belay.run/internal/version"
	"belay.run/starter/doctor"
)

// closeWithin is how long doctor waits for a store to be closed.
const closeWithin = time.Second

// doctorDoc is what doctor prints under -o json.
type doctorDoc struct {
	Checks []doctor.Check `json:"checks"`
}

func doctorCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the installation, and say what is wrong and what to do",
		Long: "Looks at Temporal, Redis, the store and the workers, all at once and for 10 seconds\n" +
			"at most, and says of each thing that is wrong what to do about it.\n\n" +
			"The exit code is 0 if nothing is wrong, 1 if something is, and 6 if Temporal or\n" +
			"Redis cannot be reached.",
		Args: noArgs,
	}
	out := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := a.interruptible(cmd.Context())
		defer stop()
		cfg, closing, err := a.patient(ctx)
		if err != nil {
			return err
		}
		defer closing()
		checks := doctor.Run(ctx, cfg)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if *out == formatJSON {
			err = writeJSON(a.Out, doctorDoc{Checks: checks})
		} else {
			err = writeChecks(a.Out, checks)
		}
		if err != nil {
			return err
		}
		return examined(checks)
	}
	return cmd
}

// patient says where what is examined is found. Unlike a [Connection] it lacks no
// part since another is away.
func (a *app) patient(ctx context.Context) (doctor.Config, func(), error) {
	if a.Connect != nil {
		return a.givenPatient(ctx)
	}
	settings, err := config.FromEnvironment(os.LookupEnv)
	if err != nil {
		return doctor.Config{}, nil, &ExitError{Code: ExitUsage, Err: err}
	}
	// Each has its own, so that a store which hangs holds up nothing but itself.
	l, stores := &lazy{settings: settings}, &lazy{settings: settings}
	cfg := doctor.Config{
		Redis: l.openRedis, Store: stores.openStore, Version: version.String(),
		Temporal: func(ctx context.Context) (*doctor.Temporal, error) {
			codec, err := payloadCodec(ctx, settings)
			if err != nil {
				return nil, &config.SettingError{Setting: "BELAY_PAYLOAD_KEYS", Err: err}
			}
			t, err := config.DialTemporal(ctx, config.TemporalOptions{
				Identity: whoami(), Patience: dialPatience, Codec: codec, APIKeyFile: settings.TemporalAPIKeyFile,
			})
			if err != nil {
				return nil, err
			}
			l.onClose(t.Close)
			return &doctor.Temporal{Client: t.Client, Namespace: t.Namespace, Address: t.Address}, nil
		},
	}
	if settings.RedisLogsURL != settings.RedisURL {
		cfg.RedisLogs = func() (redis.UniversalClient, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.dial(settings.RedisLogsURL)
		}
	}
	return cfg, func() {
		l.close()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			stores.close()
		}()
		select {
		case <-closed:
		case <-time.After(closeWithin): // it hangs: the process ends without it
		}
	}, nil
}

// givenPatient is patient where the connection is given.
func (a *app) givenPatient(ctx context.Context) (doctor.Config, func(), error) {
	var mu sync.Mutex
	var opened *Connection
	open := sync.OnceValues(func() (*Connection, error) {
		conn, err := a.Connect(ctx)
		mu.Lock()
		defer mu.Unlock()
		opened = conn
		return conn, err
	})
	cfg := doctor.Config{
		Version: version.String(),
		Temporal: func(context.Context) (*doctor.Temporal, error) {
			conn, err := open()
			if err != nil {
				return nil, err
			}
			return &doctor.Temporal{Client: conn.Temporal, Namespace: conn.Namespace}, nil
		},
		Redis: func() (redis.UniversalClient, error) {
			conn, err := open()
			if err != nil || conn.Redis == nil {
				return nil, err
			}
			return conn.Redis()
		},
		Store: func(ctx context.Context) (store.Store, error) {
			conn, err := open()
			switch {
			case err != nil:
				return nil, err
			case conn.Store == nil:
				return nil, errors.New("no store is given")
			}
			return conn.Store(ctx)
		},
	}
	return cfg, func() {
		mu.Lock()
		defer mu.Unlock()
		if opened != nil && opened.Close != nil {
			opened.Close()
		}
	}, nil
}

// writeChecks prints what was found, and under what is wrong what to do.
func writeChecks(w io.Writer, checks []doctor.Check) error {
	rows, wrong := make([][]string, len(checks)), 0
	for i, c := range checks {
		word := "ok"
		if !c.OK {
			word = "WRONG"
			wrong++
		}
		rows[i] = []string{word, c.Name, tree.Clean(c.Found)}
	}
	var b strings.Builder
	for i, line := range tree.Table(rows) {
		b.WriteString(line + "\n")
		if c := checks[i]; c.Remedy != "" {
			fmt.Fprintf(&b, "       %s\n", tree.Clean(c.Remedy))
		}
	}
	if wrong == 0 {
		b.WriteString("all is well\n")
	} else {
		fmt.Fprintf(&b, "%s of %d found something wrong\n", counted(wrong, "check"), len(checks))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing what was found: %w", err)
	}
	return nil
}

// examined is the end of the command; what was found has been shown.
func examined(checks []doctor.Check) error {
	code := ExitOK
	for _, c := range checks {
		switch {
		case c.OK:
		case c.Unreachable:
			return &ExitError{Code: ExitUnreachable}
		default:
			code = ExitFailed
		}
	}
	if code == ExitOK {
		return nil
	}
	return &ExitError{Code: code}
}
