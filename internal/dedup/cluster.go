package dedup

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// servers are those that hold keys: the masters of a cluster, else the one there
// is.
func (c *Claims) servers(ctx context.Context) ([]redis.Cmdable, error) {
	cluster, ok := c.rdb.(*redis.ClusterClient)
	if !ok {
		return []redis.Cmdable{c.rdb}, nil
	}
	var (
		mu      sync.Mutex
		masters []redis.Cmdable
	)
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, node)
		return nil
	})
	return masters, err
}
