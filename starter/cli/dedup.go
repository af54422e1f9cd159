package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"belay.run/internal/config"
	"belay.run/internal/dedup"
	"belay.run/internal/run"
)

// redisPatience is how long Redis has to answer at all.
const redisPatience = 5 * time.Second

func dedupCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dedup",
		Short: "Look at claims of keys, and at the audit of what they blocked",
		Args:  cobra.ArbitraryArgs,
		RunE:  helpOrUnknown,
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(dedupCheckCommand(a), dedupAuditCommand(a), dedupStatsCommand(a), dedupReleaseCommand(a))
	return cmd
}

// scopeFlags say whose keys are meant.
type scopeFlags struct {
	tenant, project, pipeline string
	step                      bool
}

// add gives a command the flags. Keys of steps are the project's, so that a
// pipeline is not named with them.
func (f *scopeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.tenant, "tenant", run.DefaultTenant, "whose key it is")
	flags.StringVar(&f.project, "project", run.DefaultProject, "the project it belongs to")
	flags.StringVar(&f.pipeline, "pipeline", "", "the pipeline whose key it is, by its `name`")
	flags.BoolVar(&f.step, "step", false, "it is the key of a step: these are shared by the pipelines of a project")
}

// key is the key of that name.
func (f *scopeFlags) key(name string) (dedup.Key, error) {
	switch {
	case name == "" || len(name) > dedup.MaxKey:
		return dedup.Key{}, usage("a key has 1 to %d bytes", dedup.MaxKey)
	case f.step && f.pipeline != "":
		return dedup.Key{}, usage("--step and --pipeline: the keys of steps belong to the project; leave out --pipeline")
	case !f.step && f.pipeline == "":
		return dedup.Key{}, usage("whose key is it? give --pipeline NAME, or --step for the key of a step")
	}
	return dedup.Key{Tenant: f.tenant, Project: f.project, Pipeline: f.pipeline, Name: name}, nil
}

// needsClaims is why the commands about claims need Redis.
const needsClaims = "claims and their audit are kept in Redis"

// withRedis opens the Redis that keeps claims, the audit and durations, and does
// something with it. Temporal is not needed. Where none is configured, the error
// says why it is needed.
func (a *app) withRedis(ctx context.Context, why string, do func(context.Context, redis.UniversalClient) error) error {
	if a.Connect != nil {
		return a.connected(ctx, func(ctx context.Context, conn *Connection) error {
			rdb, err := conn.openRedis(ctx, why)
			if err != nil {
				return err
			}
			return redisFault(do(ctx, rdb))
		})
	}
	settings, err := config.FromEnvironment(os.LookupEnv)
	if err != nil {
		return &ExitError{Code: ExitUsage, Err: err}
	}
	ctx, stop := a.interruptible(ctx)
	defer stop()
	l := &lazy{settings: settings}
	defer l.close()
	rdb, err := (&Connection{Redis: l.openRedis}).openRedis(ctx, why)
	if err != nil {
		return interrupted(ctx, err)
	}
	return interrupted(ctx, redisFault(do(ctx, rdb)))
}

// withClaims opens the claims too, and Temporal, which knows whether an owner
// lives.
func (a *app) withClaims(ctx context.Context, do func(context.Context, *Connection, redis.UniversalClient, *dedup.Claims) error) error {
	return a.connected(ctx, func(ctx context.Context, conn *Connection) error {
		rdb, err := conn.openRedis(ctx, needsClaims)
		if err != nil {
			return err
		}
		claims, err := dedup.Open(rdb, dedup.Options{}) //nolint:contextcheck,nolintlint // it lives until Close; the linter does not always follow it
		if err != nil {
			return fmt.Errorf("opening the claims: %w", err)
		}
		defer claims.Close()
		return redisFault(do(ctx, conn, rdb, claims))
	})
}

// openRedis is a Redis that answers. Why it is needed says the error where there
// is none.
func (c *Connection) openRedis(ctx context.Context, why string) (redis.UniversalClient, error) {
	var rdb redis.UniversalClient
	if c.Redis != nil {
		var err error
		if rdb, err = c.Redis(); err != nil {
			return nil, err
		}
	}
	if rdb == nil {
		return nil, &ExitError{Code: ExitUsage, Err: errors.New(why + ", and none is configured"), Hint: "set REDIS_URL to the one that the workers use"}
	}
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	return rdb, config.PingRedis(ctx, rdb, redisAddress(rdb))
}

// redisAddress is where a client finds Redis, as a URL.
func redisAddress(rdb redis.UniversalClient) string {
	switch c := rdb.(type) {
	case *redis.Client:
		if c.Options().Network == "unix" {
			return "unix://" + c.Options().Addr
		}
		return "redis://" + c.Options().Addr
	case *redis.ClusterClient:
		return "redis://" + strings.Join(c.Options().Addrs, ",")
	}
	return ""
}

// redisFault gives the error of a Redis that went away the code of that.
func redisFault(err error) error {
	var lost net.Error // Temporal's are of other kinds
	if errors.Is(err, dedup.ErrUnavailable) || errors.As(err, &lost) {
		return unreachable(err, "is Redis running, and is REDIS_URL right?")
	}
	return err
}

// place is where a run is found: its id, and which of the runs under it.
func place(workflowID, runID string) string {
	if workflowID == "" || runID == "" {
		return workflowID
	}
	return workflowID + "@" + runID
}
