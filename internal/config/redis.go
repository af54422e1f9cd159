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
	u, err := readRedisURL(rawURL)
	if err != nil {
		return nil, err
	}
	switch u.kind {
	case redisCluster:
		opts, err := u.clusterOptions()
		if err != nil {
			return nil, err
		}
		return redis.NewClusterClient(opts), nil
	case redisSentinel:
		opts, err := u.sentinelOptions()
		if err != nil {
			return nil, err
		}
		return redis.NewFailoverClient(opts), nil
	case redisSingle:
	}
	opts, err := u.options()
	if err != nil {
		return nil, err
	}
	return redis.NewClient(opts), nil
}

// checkRedisURL says what is wrong with a URL.
func checkRedisURL(rawURL string) error {
	u, err := readRedisURL(rawURL)
	if err != nil {
		return err
	}
	switch u.kind {
	case redisCluster:
		_, err = u.clusterOptions()
	case redisSentinel:
		_, err = u.sentinelOptions()
	case redisSingle:
		_, err = u.options()
	}
	return err
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
	if opts.TLSConfig, err = u.tls.config(u.secure, u.host()); err != nil {
		return nil, u.wrong(err)
	}
	setUnlessGiven(&opts.DialTimeout, redisDialTimeout)
	setUnlessGiven(&opts.ReadTimeout, redisCallTimeout)
	setUnlessGiven(&opts.WriteTimeout, redisCallTimeout)
	setUnlessGiven(&opts.PoolTimeout, redisPoolTimeout)
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
	// Each node is checked under its own name.
	if opts.TLSConfig, err = u.tls.config(u.secure, ""); err != nil {
		return nil, u.wrong(err)
	}
	setUnlessGiven(&opts.DialTimeout, redisDialTimeout)
	setUnlessGiven(&opts.ReadTimeout, redisCallTimeout)
	setUnlessGiven(&opts.WriteTimeout, redisCallTimeout)
	setUnlessGiven(&opts.PoolTimeout, redisPoolTimeout)
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
	if opts.TLSConfig, err = u.tls.config(u.secure, ""); err != nil {
		return nil, u.wrong(err)
	}
	setUnlessGiven(&opts.DialTimeout, redisDialTimeout)
	setUnlessGiven(&opts.ReadTimeout, redisCallTimeout)
	setUnlessGiven(&opts.WriteTimeout, redisCallTimeout)
	setUnlessGiven(&opts.PoolTimeout, redisPoolTimeout)
	setUnlessGiven(&opts.MaxRetries, redisRetries)
	opts.ContextTimeoutEnabled = true
	return opts, nil
}

// noMaintenance turns off what managed services announce their maintenance by;
// plain servers only log that they do not know the command.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

func setUnlessGiven[T comparable](field *T, v T) {
	var zero T
	if *field == zero {
		*field = v
	}
}
