package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"belay.run/internal/dedup"
)

// Published decides by the algorithm that is commonly published: look into a
// local cache, GET from Redis, then SETEX. It is here to be compared with, with
// all of its faults: two callers pass between GET and SETEX, a local "running"
// lives on after the end, what completed runs again, a crash blocks the key.
type Published struct {
	rdb redis.UniversalClient

	mu    sync.Mutex
	local map[string]publishedEntry
}

type publishedEntry struct {
	state string
	until time.Time
}

// The times of the published algorithm.
const (
	publishedLocal = 5 * time.Minute
	publishedTTL   = 24 * time.Hour
)

// NewPublished returns the published algorithm over rdb.
func NewPublished(rdb redis.UniversalClient) *Published {
	return &Published{rdb: rdb, local: map[string]publishedEntry{}}
}

// Claim runs unless the local cache or Redis says that one is pending or running.
func (p *Published) Claim(ctx context.Context, claim dedup.Claim) (dedup.Verdict, error) {
	v := dedup.Verdict{Decision: dedup.InFlight, Record: dedup.Record{Key: claim.Key, Owner: claim.Owner}}
	name := "published:" + claim.Key.Name // no tenant in it
	p.mu.Lock()
	seen, ok := p.local[name]
	p.mu.Unlock()
	if ok && seen.state == "running" && time.Now().Before(seen.until) {
		v.Local = true
		return v, nil
	}
	state, err := p.rdb.Get(ctx, name).Result()
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return v, fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	case state == "running":
		p.remember(name, state)
		return v, nil
	}
	if err := p.rdb.SetEx(ctx, name, "running", publishedTTL).Err(); err != nil {
		return v, fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	p.remember(name, "running")
	v.Decision = dedup.Granted
	return v, nil
}

func (p *Published) remember(name, state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.local[name] = publishedEntry{state, time.Now().Add(publishedLocal)}
}

// Settle is the finally of the published algorithm: whoever ends overwrites what
// is there.
func (p *Published) Settle(ctx context.Context, s dedup.Settlement) error {
	name := "published:" + s.Key.Name
	if err := p.rdb.SetEx(ctx, name, "completed", publishedTTL).Err(); err != nil {
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	p.remember(name, "completed")
	return nil
}
