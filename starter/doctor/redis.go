package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	// fullMost is how full Redis may be, of its maxmemory.
	fullMost = 0.9
	// roleMaster is that of a server that takes writes.
	roleMaster = "master"
)

// errNoRedis says that none is configured, which is a way to run.
var errNoRedis = errors.New("none is configured")

// info is what a server says of itself.
type info map[string]string

func (i info) number(name string) float64 {
	n, err := strconv.ParseFloat(i[name], 64)
	if err != nil {
		return 0 // it does not say
	}
	return n
}

// readInfos asks the server, or each master of a Cluster.
func (d *doctor) readInfos(ctx context.Context) ([]info, error) {
	rdb, err := d.redis()
	switch {
	case err != nil:
		return nil, err
	case rdb == nil:
		return nil, errNoRedis
	}
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		text, err := rdb.Info(ctx).Result()
		return []info{parseInfo(text)}, err
	}
	var mu sync.Mutex
	var out []info
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		text, err := c.Info(ctx).Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		out = append(out, parseInfo(text))
		return nil
	})
	return out, err
}

func parseInfo(text string) info {
	out := info{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

// noRedis is the check where there is none, or none that answers.
func noRedis(err error) Check {
	if errors.Is(err, errNoRedis) {
		return good("%s", err)
	}
	return unknown(fmt.Errorf("%w: Redis cannot be used", errNotAsked), "")
}

func (d *doctor) checkRedis(ctx context.Context) Check {
	rdb, err := d.redis()
	switch {
	case err != nil:
		return bad("is REDIS_URL right? docs/configuration.md says how it is written", "%s", oneLine(err))
	case rdb == nil:
		return advised("keys, locks, live logs and the audit need one: set REDIS_URL, for workers and starters", "%s", errNoRedis)
	}
	if err := rdb.Ping(ctx).Err(); err != nil {
		return redisAway(err)
	}
	infos, err := d.infos()
	if err != nil {
		return bad("let the user of REDIS_URL use INFO, or nobody can see how this Redis is set", "it answers, but does not say how it is: %s", oneLine(err))
	}
	for _, i := range infos {
		if role := i["role"]; role != "" && role != roleMaster {
			return bad("point REDIS_URL to the master, or to the Sentinels (redis+sentinel://)", "it is a %s, which takes no writes", role)
		}
		if i["loading"] == "1" {
			return bad("wait until it has read its data", "it is loading")
		}
	}
	mode := infos[0]["redis_mode"]
	if len(infos) > 1 {
		mode = fmt.Sprintf("cluster of %d masters", len(infos))
	}
	return good("version %s, %s", infos[0]["redis_version"], mode)
}

func redisAway(err error) Check {
	text := err.Error()
	for _, refusal := range []string{"NOAUTH", "WRONGPASS", "NOPERM"} {
		if strings.Contains(text, refusal) {
			return bad("give REDIS_URL a user and a password that may use Belay's keys", "it refuses: %s", oneLine(err))
		}
	}
	c := bad("is it running, is REDIS_URL right, and does its password belong to it?", "%s", oneLine(err))
	c.Unreachable = true
	return c
}

func (d *doctor) checkPersistence(context.Context) Check {
	infos, err := d.infos()
	if err != nil {
		return noRedis(err)
	}
	for _, i := range infos {
		switch {
		case i["aof_enabled"] == "0":
			return bad("set appendonly yes (and appendfsync everysec): what completed under a key is forgotten by a restart otherwise, and may run again", "its append-only file is off")
		case i["aof_last_write_status"] == "err", i["aof_last_bgrewrite_status"] == "err":
			return bad("has its disk room? its log says more", "it could not write its append-only file")
		case i["aof_enabled"] == "":
			return advised("make sure that it keeps what it holds over a restart", "it does not say")
		}
	}
	return good("append-only file")
}

func (d *doctor) checkEviction(context.Context) Check {
	infos, err := d.infos()
	if err != nil {
		return noRedis(err)
	}
	for _, i := range infos {
		policy, used, most := i["maxmemory_policy"], i.number("used_memory"), i.number("maxmemory")
		switch {
		case policy != "noeviction" && policy != "":
			return bad("set maxmemory-policy noeviction: with another, keys that are held and locks vanish when memory is short, and things run twice", "maxmemory-policy is %s", policy)
		case most > 0 && used > fullMost*most:
			return bad("raise maxmemory, shorten retention_audit and retention_records, or keep logs elsewhere (BELAY_STORE, REDIS_LOGS_URL)",
				"noeviction, but %.0f%% of its memory is used: when it is full, claims fail", 100*used/most)
		}
	}
	return good("noeviction")
}

// scriptProbe is what all of Belay's scripts need of Redis.
var scriptProbe = redis.NewScript(`return redis.call('TIME')[1]`)

func (d *doctor) checkScripts(ctx context.Context) Check {
	rdb, err := d.redis()
	if err != nil || rdb == nil {
		if err == nil {
			err = errNoRedis
		}
		return noRedis(err)
	}
	if err := scriptProbe.Run(ctx, rdb, []string{"belay:doctor"}).Err(); err != nil {
		return bad("let the user of REDIS_URL use EVAL and EVALSHA on belay:*: every claim is a script", "scripts do not run: %s", oneLine(err))
	}
	return good("scripts run")
}

func (d *doctor) checkRedisLogs(ctx context.Context) Check {
	if rdb, err := d.redis(); d.cfg.RedisLogs == nil && err == nil && rdb == nil {
		return noRedis(errNoRedis)
	}
	if d.cfg.RedisLogs == nil {
		return good("the same Redis")
	}
	rdb, err := d.cfg.RedisLogs()
	switch {
	case err != nil:
		return bad("is REDIS_LOGS_URL right?", "%s", oneLine(err))
	case rdb == nil:
		return good("the same Redis")
	}
	if err := rdb.Ping(ctx).Err(); err != nil {
		return bad("is it running, and is REDIS_LOGS_URL right? without it logs are seen later, from the store", "%s", oneLine(err))
	}
	return good("it answers")
}
