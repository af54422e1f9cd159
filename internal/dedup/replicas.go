package dedup

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

const (
	// replicaFor is how long a claim waits for a replica to have it.
	replicaFor = 200 * time.Millisecond
	// replicasFor is how long it is believed how many replicas a server has.
	replicasFor = 10 * time.Second
)

// replicas knows which servers have replicas.
type replicas struct {
	mu    sync.Mutex
	known map[string]census
}

type census struct {
	at time.Time
	n  int
}

// replicated waits a moment for a replica to have what was written under a key,
// and reports whether one has. That none has is no reason to fail: it is as safe
// as a Redis without replicas.
func (c *Claims) replicated(ctx context.Context, key string) bool {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	ok, err := c.waitForReplica(ctx, key)
	if err != nil {
		c.log.Warn("A claim may not be on a replica yet", zap.String("claim", key), zap.Error(err))
	}
	return ok
}

func (c *Claims) waitForReplica(ctx context.Context, key string) (bool, error) {
	node, name := c.rdb, ""
	if cluster, ok := c.rdb.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return false, err
		}
		node, name = master, master.Options().Addr
	}
	n, err := c.replicas.count(ctx, name, node)
	if n == 0 || err != nil {
		return false, err
	}
	// WAIT is for what its own connection wrote, and replicas take writes in
	// order: so a write after the claim, and the wait for that.
	var acks *redis.Cmd
	_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, key+":w", "", time.Second)
		acks = p.Do(ctx, "WAIT", 1, replicaFor.Milliseconds())
		return nil
	})
	if err != nil {
		return false, err
	}
	got, err := acks.Int()
	return got > 0, err
}

// count is how many replicas a server has.
func (r *replicas) count(ctx context.Context, name string, node redis.Cmdable) (int, error) {
	r.mu.Lock()
	c, ok := r.known[name]
	r.mu.Unlock()
	if ok && time.Since(c.at) < replicasFor {
		return c.n, nil
	}
	info, err := node.Info(ctx, "replication").Result()
	if err != nil {
		return 0, err
	}
	c = census{at: time.Now()}
	for line := range strings.Lines(info) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "connected_slaves:"); ok {
			if c.n, err = strconv.Atoi(n); err != nil {
				return 0, err
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[string]census{}
	}
	r.known[name] = c
	return c.n, nil
}
