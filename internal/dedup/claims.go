package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"belay.run/internal/telemetry"
)

const (
	// callFor bounds each call to Redis, its retries included.
	callFor = 5 * time.Second
	// keepFor is how long a claim is kept beyond its window, and keepRequestFor
	// how long a request id means the run that it began.
	keepFor        = 7 * 24 * time.Hour
	keepRequestFor = 24 * time.Hour
	// lateFor is how long a failure or a cancel answers requests that were made
	// before it. It is longer than a claim may wait for Redis.
	lateFor = 10 * time.Minute
	// recoverFor is how long after the loss of its memory Redis may not know of
	// claims whose owners live: they put them back.
	recoverFor = time.Minute
)

// Options are what [Open] may be told.
type Options struct {
	// Log takes what nobody is told otherwise: that Redis lost its memory, that
	// the local tier is off. Defaults to none.
	Log *zap.Logger
	// Tier says whether to answer hot duplicates from the memory of this
	// process. It pays for itself in a worker. Defaults to off.
	Tier bool
	// Clock is what the local tier goes by, which is all that this process's
	// clock decides. Defaults to time.Now.
	Clock func() time.Time
}

// Claims makes claims in Redis. It is safe for concurrent use. Each call ends
// within seconds, whatever Redis does; an error wraps [ErrUnavailable] where it
// is worth trying again later.
type Claims struct {
	rdb      redis.UniversalClient
	log      *zap.Logger
	replicas replicas
	tier     *tier // nil: none
	// heardBy is the constant, save in tests.
	heardBy time.Duration
	stop    context.CancelCauseFunc
	stopped sync.WaitGroup
}

// errClosed is why the tier ends.
var errClosed = errors.New("claims were closed")

// Open returns the claims that rdb keeps. It does not wait for Redis.
func Open(rdb redis.UniversalClient, opts Options) (*Claims, error) {
	if rdb == nil {
		return nil, errors.New("claims need a Redis")
	}
	c := &Claims{rdb: rdb, log: telemetry.OrNop(opts.Log), heardBy: heardBy}
	// The tier lives as long as the claims, not as whoever opens them.
	ctx, stop := context.WithCancelCause(context.Background())
	c.stop = stop
	if opts.Tier {
		var err error
		if c.tier, err = newTier(opts.Clock); err != nil {
			stop(err)
			return nil, err
		}
		c.stopped.Go(func() { c.listen(ctx) })
	}
	return c, nil
}

// Close ends what runs beside the calls. It is safe to call twice.
func (c *Claims) Close() {
	c.stop(errClosed)
	c.stopped.Wait()
}

// Now is Redis's clock.
func (c *Claims) Now(ctx context.Context) (time.Time, error) {
	call, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	now, err := c.rdb.Time(call).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("asking Redis for the time: %w", fault(ctx, err))
	}
	return now.UTC(), nil
}

// micros reads the time at place i of an answer.
func micros(answer []any, i int) (time.Time, error) {
	if i < len(answer) {
		if us, ok := answer[i].(int64); ok {
			return time.UnixMicro(us).UTC(), nil
		}
	}
	return time.Time{}, errDamaged
}
