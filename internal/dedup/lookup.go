package dedup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/redis/go-redis/v9"
)

// page is about how many keys are read in one round trip.
const page = 500

// Lookup returns the claim under a key, nil where nothing blocks or answers a
// request: there was none, its window is over, or it was released.
func (c *Claims) Lookup(ctx context.Context, key Key) (*Record, error) {
	return c.look(ctx, key, "")
}

// LookupRequest returns the claim under a key as the run left it that the request
// began, in whatever state; nil where the request began none in the last 24 h.
func (c *Claims) LookupRequest(ctx context.Context, key Key, requestID string) (*Record, error) {
	if requestID == "" {
		return nil, nil //nolint:nilnil // a request without an id began nothing that can be found
	}
	return c.look(ctx, key, requestName(requestID))
}

// Last returns the last claim under a key whatever became of it, also one that
// blocks nobody any more: its window is over, or an operator released it. It is
// nil where Redis knows of none.
func (c *Claims) Last(ctx context.Context, key Key) (*Record, error) {
	r, _, err := c.read(ctx, key, "")
	if err != nil || r == nil {
		return nil, err
	}
	return &r.Record, nil
}

func (c *Claims) look(ctx context.Context, key Key, request string) (*Record, error) {
	r, now, err := c.read(ctx, key, request)
	if err != nil || r == nil || request == "" && r.over(now) {
		return nil, err
	}
	return &r.Record, nil
}

// read returns what is kept, nil where nothing is, and the time.
func (c *Claims) read(ctx context.Context, key Key, request string) (*stored, time.Time, error) {
	if err := key.check(); err != nil {
		return nil, time.Time{}, err
	}
	got, err := c.run(ctx, lookScript, []string{key.redisKey()}, request)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("looking up %s: %w", key, fault(ctx, err))
	}
	now, err := micros(got, 0)
	if err != nil || len(got) != 2 {
		return nil, time.Time{}, fmt.Errorf("looking up %s: %w", key, errDamaged)
	}
	if fields, ok := got[1].([]any); ok && len(fields) == 0 {
		return nil, now, nil
	}
	r, err := decode(got[1])
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("looking up %s: %w", key, err)
	}
	return &r, now, nil
}

// Running yields all claims that are held, in no order. One that begins or ends
// meanwhile may be missing or not; one may come twice.
func (c *Claims) Running(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		servers, err := c.servers(ctx)
		for _, server := range servers {
			if err == nil {
				err = c.scan(ctx, server, yield)
			}
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(Record{}, fmt.Errorf("listing claims: %w", fault(ctx, err)))
		}
	}
}

// errStopped says that the reader of a sequence has had enough.
var errStopped = errors.New("stopped")

// scan yields the running claims of one server.
func (c *Claims) scan(ctx context.Context, node redis.Cmdable, yield func(Record, error) bool) error {
	for cursor := uint64(0); ; {
		records, next, err := c.scanPage(ctx, node, cursor)
		if err != nil {
			return err
		}
		for _, r := range records {
			if !yield(r, nil) {
				return errStopped
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func (c *Claims) scanPage(ctx context.Context, node redis.Cmdable, cursor uint64) ([]Record, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	keys, next, err := node.ScanType(ctx, cursor, claimPattern, page, "hash").Result()
	if err != nil || len(keys) == 0 {
		return nil, next, err
	}
	cmds, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.HGetAll(ctx, key)
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	var records []Record
	for i, cmd := range cmds {
		fields := cmd.(*redis.MapStringStringCmd).Val() //nolint:errcheck,forcetypeassert // what HGetAll adds
		if State(fields["state"]) != Running {
			continue
		}
		r, err := decodeFields(fields)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: %s: %w", errDamaged, keys[i], err)
		}
		records = append(records, r.Record)
	}
	return records, next, nil
}
