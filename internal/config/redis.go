package config

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Bounds of every call to Redis. A URL can set others: ?read_timeout=10s.
const (
	redisDialTimeout = 3 * time.Second
	redisCallTimeout = 3 * time.Second
	redisPoolTimeout = 5 * time.Second
	redisRetries     = 2
)

// NewRedis returns a client of the Redis that the URL describes, nil for an
// empty one: a server, a Cluster, or the master that Sentinels name. It does not
// connect yet, and closes with Close.
func NewRedis(rawURL string) (redis.UniversalClient, error) {
	if rawURL == "" {
		return nil, nil //nolint:nilnil // no Redis is a way to run
	}
	open, err := redisClient(rawURL)
	if err != nil {
		return nil, err
	}
	return open(), nil
}

// checkRedisURL says what is wrong with a URL.
func checkRedisURL(rawURL string) error {
	_, err := redisClient(rawURL)
	return err
}

// redisClient is how to make the client. A check stops short of it: one with
// ?min_idle_conns= begins to connect as soon as it is made.
func redisClient(rawURL string) (open func() redis.UniversalClient, err error) {
	u, err := readRedisURL(rawURL)
	if err != nil {
		return nil, err
	}
	switch u.kind {
	case redisCluster:
		opts, err := u.clusterOptions()
		return func() redis.UniversalClient { return redis.NewClusterClient(opts) }, err
	case redisSentinel:
		opts, err := u.sentinelOptions()
		return func() redis.UniversalClient { return redis.NewFailoverClient(opts) }, err
	case redisSingle:
	}
	opts, err := u.options()
	return func() redis.UniversalClient { return redis.NewClient(opts) }, err
}

// PingRedis returns an [UnreachableError] unless Redis answers.
func PingRedis(ctx context.Context, c redis.UniversalClient, rawURL string) error {
	err := c.Ping(ctx).Err()
	if err == nil {
		return nil
	}
	return &UnreachableError{
		Service: "Redis", Address: RedactURL(rawURL), Err: err,
		Check: "is it running, is REDIS_URL right, and does its password belong to it?",
	}
}

// options are those of one server.
func (u *redisTarget) options() (*redis.Options, error) {
	opts, err := redis.ParseURL(u.plain())
	if err != nil {
		return nil, u.wrong(err)
	}
	boundCalls(&opts.DialTimeout, &opts.ReadTimeout, &opts.WriteTimeout, &opts.PoolTimeout)
	if opts.TLSConfig, opts.Dialer, err = u.tls.config(u.secure, u.host(), opts.DialTimeout); err != nil {
		return nil, u.wrong(err)
	}
	setUnlessGiven(&opts.MaxRetries, redisRetries)
	opts.ContextTimeoutEnabled = true
	opts.MaintNotificationsConfig = noMaintenance()
	return opts, nil
}

// clusterOptions are those of a Cluster. It repeats a command by itself where a
// node does not answer, once it knows who has taken its place.
func (u *redisTarget) clusterOptions() (*redis.ClusterOptions, error) {
	if u.path != "" && u.path != "0" {
		return nil, u.wrong(fmt.Errorf("database %q: a Redis Cluster has only database 0", u.path))
	}
	opts, err := redis.ParseClusterURL(u.plain())
	if err != nil {
		return nil, u.wrong(err)
	}
	boundCalls(&opts.DialTimeout, &opts.ReadTimeout, &opts.WriteTimeout, &opts.PoolTimeout)
	// Each node is checked under its own name.
	if opts.TLSConfig, opts.Dialer, err = u.tls.config(u.secure, "", opts.DialTimeout); err != nil {
		return nil, u.wrong(err)
	}
	opts.ContextTimeoutEnabled = true
	opts.MaintNotificationsConfig = noMaintenance()
	return opts, nil
}

// sentinelOptions are those of the master that Sentinels name.
func (u *redisTarget) sentinelOptions() (*redis.FailoverOptions, error) {
	opts, err := redis.ParseFailoverURL(u.plain())
	if err != nil {
		return nil, u.wrong(err)
	}
	if opts.MasterName == "" {
		return nil, u.wrong(errors.New("no name of a master: want redis+sentinel://host1:26379,host2:26379/master-name"))
	}
	boundCalls(&opts.DialTimeout, &opts.ReadTimeout, &opts.WriteTimeout, &opts.PoolTimeout)
	if opts.TLSConfig, opts.Dialer, err = u.tls.config(u.secure, "", opts.DialTimeout); err != nil {
		return nil, u.wrong(err)
	}
	setUnlessGiven(&opts.MaxRetries, redisRetries)
	opts.ContextTimeoutEnabled = true
	return opts, nil
}

// noMaintenance turns off what managed services announce their maintenance by;
// plain servers only log that they do not know the command.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// boundCalls sets the timeouts that the URL does not set.
func boundCalls(dial, read, write, pool *time.Duration) {
	setUnlessGiven(dial, redisDialTimeout)
	setUnlessGiven(read, redisCallTimeout)
	setUnlessGiven(write, redisCallTimeout)
	setUnlessGiven(pool, redisPoolTimeout)
}

func setUnlessGiven[T comparable](field *T, v T) {
	var zero T
	if *field == zero {
		*field = v
	}
}
