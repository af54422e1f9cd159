package config

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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
// empty one. It does not connect yet, and closes with Close.
func NewRedis(rawURL string) (redis.UniversalClient, error) {
	if rawURL == "" {
		return nil, nil //nolint:nilnil // no Redis is a way to run
	}
	opts, err := redisOptions(rawURL)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(opts), nil
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

// RedactURL is a URL as it may be shown: without user, password and query.
func RedactURL(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "(a URL that cannot be read)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// redisOptions reads a URL. Errors never show it: it may hold a password.
func redisOptions(rawURL string) (*redis.Options, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("not a URL: want redis://[user:password@]host:port/db, with the password percent-encoded")
	}
	switch u.Scheme {
	case "redis", "rediss", "unix":
	case "redis+sentinel", "redis+cluster":
		return nil, fmt.Errorf("%s:// is not supported in this version: want redis://, rediss:// or unix://", u.Scheme)
	default:
		return nil, fmt.Errorf("scheme %q: want redis://, rediss:// or unix://", u.Scheme)
	}
	opts, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", RedactURL(rawURL), err)
	}
	setUnlessGiven(&opts.DialTimeout, redisDialTimeout)
	setUnlessGiven(&opts.ReadTimeout, redisCallTimeout)
	setUnlessGiven(&opts.WriteTimeout, redisCallTimeout)
	setUnlessGiven(&opts.PoolTimeout, redisPoolTimeout)
	setUnlessGiven(&opts.MaxRetries, redisRetries)
	opts.ContextTimeoutEnabled = true
	// Managed services announce maintenance by it; plain servers only log that
	// they do not know the command.
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return opts, nil
}

func setUnlessGiven[T comparable](field *T, v T) {
	var zero T
	if *field == zero {
		*field = v
	}
}
