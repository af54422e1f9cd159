package audit

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"belay.run/internal/dedup"
	"belay.run/internal/run"
)

// Meter gathers in memory what the audit does not hear of, how many claims were
// granted and how long claims took, and adds it to the counts in Redis now and
// then. It is safe for concurrent use.
type Meter struct {
	rdb redis.UniversalClient

	took [2]spread // by tier: Redis, local

	mu      sync.Mutex
	granted map[subject]int64
}

type subject struct{ tenant, project, pipeline string }

// maxSubjects bounds what is counted apart between two flushes.
const maxSubjects = 10_000

var _ dedup.Observer = (*Meter)(nil)

// NewMeter returns a Meter that flushes to Redis.
func NewMeter(rdb redis.UniversalClient) *Meter {
	return &Meter{rdb: rdb, granted: make(map[subject]int64)}
}

// Claiming does nothing.
func (m *Meter) Claiming() {}

// Claimed counts one claim.
func (m *Meter) Claimed(o *dedup.Observation) {
	if o.Err != nil {
		return
	}
	tier := 0
	if o.Local {
		tier = 1
	}
	m.took[tier].add(o.Took)
	if o.Decision == dedup.Granted {
		m.count(subject{o.Key.Tenant, o.Key.Project, pipelineOf(o)}, 1)
	}
}

func (m *Meter) count(s subject, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.granted[s]; !known && len(m.granted) >= maxSubjects {
		s.project, s.pipeline = otherName, otherName
	}
	m.granted[s] += n
}

// pipelineOf is the pipeline that claims. The key of a step does not say; the id
// of a run that Belay started does.
func pipelineOf(o *dedup.Observation) string {
	if o.Key.Pipeline != "" {
		return o.Key.Pipeline
	}
	_, _, pipeline, _ := run.Scope(o.Owner.WorkflowID)
	return pipeline
}

// Flush adds what was gathered to the counts in Redis. What cannot be added is
// kept for the next time.
func (m *Meter) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, TimeoutDefault)
	defer cancel()
	now, err := m.rdb.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("asking Redis for the time: %w", err)
	}
	if err := m.flushTook(ctx, now); err != nil {
		return err
	}
	m.mu.Lock()
	taken := m.granted
	m.granted = make(map[subject]int64)
	m.mu.Unlock()
	for s, n := range taken {
		c := count{project: s.project, pipeline: s.pipeline, what: granted}
		if err == nil {
			err = m.add(ctx, countsKey(countsPrefix(s.tenant), hourOf(now)), countsKept, c.other().field(), c.field(), n)
		}
		if err != nil {
			m.count(s, n)
			continue
		}
		// A tenant whose claims were all granted is listed too. What fails from here
		// on is not counted again: it is in the hour already.
		err = m.rdb.SAdd(ctx, tenantsKey, s.tenant).Err()
		if err == nil {
			err = m.add(ctx, countsKey(daysPrefix(s.tenant), dayOf(now)), daysKept, c.other().field(), c.field(), n)
		}
	}
	if err != nil {
		return fmt.Errorf("counting granted claims: %w", explain(err))
	}
	return nil
}

func (m *Meter) flushTook(ctx context.Context, now time.Time) error {
	key := countsKey(overheadPrefix, hourOf(now))
	for i := range m.took {
		fields := m.took[i].take(tierOf(i))
		if len(fields) == 0 {
			continue
		}
		if err := m.add(ctx, key, countsKept, "", fields...); err != nil {
			m.took[i].putBack(fields)
			return fmt.Errorf("noting how long claims took: %w", explain(err))
		}
	}
	return nil
}

func (m *Meter) add(ctx context.Context, key string, kept time.Duration, other string, fields ...any) error {
	args := append([]any{maxFields, kept.Milliseconds(), other}, fields...)
	return countScript.Run(ctx, m.rdb, []string{key}, args...).Err()
}

func tierOf(i int) string {
	if i == 1 {
		return TierLocal
	}
	return TierRedis
}
