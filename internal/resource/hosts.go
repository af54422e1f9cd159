package resource

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// hostPrefix begins the keys that tell under which task queue a host is found: a
// queue is one boot's, and what a host holds may be older.
const hostPrefix = "belay:host:"

// Announce says under which queue a host is found now.
func (l *Ledger) Announce(ctx context.Context, host, queue string) error {
	if l == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	if err := l.rdb.Set(ctx, hostPrefix+host, queue, keepFor).Err(); err != nil {
		return fmt.Errorf("announcing host %s in the ledger: %w", host, err)
	}
	return nil
}

// QueueOf is the queue under which a host was found last, "" where that is not
// known.
func (l *Ledger) QueueOf(ctx context.Context, host string) (string, error) {
	if l == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	queue, err := l.rdb.Get(ctx, hostPrefix+host).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("looking for host %s in the ledger: %w", host, err)
	}
	return queue, nil
}
