package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// epochs is how many servers of a cluster may be told apart by whether one of
// them lost its memory: the epoch is kept in as many slots.
const epochs = 64

// Recovering reports whether Redis lost its memory less than a minute ago, and
// when: until then a claim may be missing whose owner lives.
func (c *Claims) Recovering(ctx context.Context) (since time.Time, ok bool, err error) {
	keys := []string{epochKey}
	if _, cluster := c.rdb.(*redis.ClusterClient); cluster {
		keys = keys[:0]
		for i := range epochs {
			keys = append(keys, fmt.Sprintf("%s:{%d}", epochKey, i))
		}
	}
	calls := make([]call, len(keys))
	for i, key := range keys {
		calls[i].keys = []string{key}
	}
	answers, err := c.runAll(ctx, epochScript, calls)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("asking Redis since when it remembers: %w", fault(ctx, err))
	}
	for _, got := range answers {
		epoch, err1 := micros(got, 0)
		now, err2 := micros(got, 1)
		if err := errors.Join(err1, err2); err != nil {
			return time.Time{}, false, err
		}
		if epoch.Equal(now) {
			c.log.Warn("Redis knows of no claims: it is new or lost its memory; live owners put theirs back",
				zap.Duration("for", recoverFor))
		}
		if epoch.After(since) {
			since = epoch
		}
		ok = ok || now.Sub(epoch) < recoverFor
	}
	return since, ok, nil
}
