package types

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// seenSuffix is what the key of a note ends by.
const seenSuffix = ":belay-seen"

// redisTarget is a key of Redis, any Redis but for Belay's own keys.
type redisTarget struct {
	tools  Tools
	addr   string
	dialed string
	secure bool
	user   string
	db     int
	key    string
	auth   auth
	most   int64
}

func readRedisTarget(a *task.Args, tools Tools, most int64) *redisTarget {
	u := readURL(a, "target", "redis", "rediss")
	r := &redisTarget{
		tools: tools, addr: address(u, "6379"), dialed: dialAddress(u, "6379"), secure: u.Scheme == "rediss", user: u.User.Username(),
		key: a.Text("key", ""), auth: bearer(a, "target_secret"), most: most,
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		var err error
		if r.db, err = strconv.Atoi(path); err != nil || r.db < 0 {
			a.Wrong("target", "found the database %.32q, expected a number", path)
		}
	}
	if _, given := u.User.Password(); given || u.RawQuery != "" {
		a.Wrong("target", "expected redis://host:port/database alone; a password is given as `target_secret`")
	}
	switch {
	case r.key == "":
		a.Wrong("key", "a target of redis:// needs it")
	case strings.HasPrefix(r.key, "belay:"):
		a.Wrong("key", "found %.64q: keys that begin with belay: are Belay's own", r.key)
	}
	return r
}

func (r *redisTarget) String() string { return "redis " + r.addr }

// do connects, and closes in the end: a target is talked to now and then, and
// a pool for each would keep its connections open for nothing.
func (r *redisTarget) do(ctx context.Context, o task.Origin, work func(c *redis.Client) error) error {
	options := &redis.Options{
		Addr: r.dialed, DB: r.db, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer:                   r.dial(ctx),
	}
	var hidden []secret.Value
	if r.auth.secret != "" {
		v, err := r.tools.secretOf(ctx, o, r.auth.param, r.auth.secret, r.addr)
		if err != nil {
			return err
		}
		options.Username, options.Password, hidden = r.user, strings.TrimSpace(v.Reveal()), []secret.Value{v}
	}
	c := redis.NewClient(options)
	err := errors.Join(work(c), c.Close())
	said, isAnswer := errors.AsType[redis.Error](err)
	if err == nil || !isAnswer || ctx.Err() != nil {
		if err != nil {
			err = failure(ctx, r.String(), err, hidden...)
		}
		return err
	}
	text := safe(said.Error(), hidden...)
	for _, code := range []string{"LOADING", "MASTERDOWN", "READONLY", "OOM", "MISCONF", "CLUSTERDOWN", "BUSY ", "ERR max number"} {
		if strings.HasPrefix(text, code) {
			return task.Faultf("%s: it answers with %s", r, text)
		}
	}
	return task.Failf(run.TriggerExitCode, "%s: it answers with %s", r, text)
}

// dial connects for as long as a task runs: go-redis itself would go on waiting
// for an answer after a cancel.
func (r *redisTarget) dial(ctx context.Context) func(context.Context, string, string) (net.Conn, error) {
	return func(dialing context.Context, network, addr string) (net.Conn, error) {
		conn, err := r.tools.Net.Dial(dialing, network, addr, r.secure)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // of a closed one it says so
		}
		return conn, err
	}
}

func (r *redisTarget) read(ctx context.Context, o task.Origin) (state, error) {
	var s state
	err := r.do(ctx, o, func(c *redis.Client) error {
		var found *redis.IntCmd
		var content, seen *redis.StringCmd
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			found = p.Exists(ctx, r.key)
			// What is longer than a source may be differs from it in any case.
			content = p.GetRange(ctx, r.key, 0, r.most)
			seen = p.GetRange(ctx, r.key+seenSuffix, 0, noteMost)
			return nil
		})
		if err != nil {
			return err
		}
		s = state{content: []byte(content.Val()), found: found.Val() == 1, note: readNote([]byte(seen.Val()))}
		return nil
	})
	return s, err
}

func (r *redisTarget) write(ctx context.Context, o task.Origin, _ state, content []byte) error {
	return r.do(ctx, o, func(c *redis.Client) error { return c.Set(ctx, r.key, content, redis.KeepTTL).Err() })
}

func (r *redisTarget) remember(ctx context.Context, o task.Origin, n note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return r.do(ctx, o, func(c *redis.Client) error { return c.Set(ctx, r.key+seenSuffix, text, 0).Err() })
}
