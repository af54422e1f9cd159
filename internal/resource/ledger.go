package resource

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"belay.run/internal/run"
)

// The keys of the ledger in Redis.
//
//	belay:ledger:{<run key>}  hash: an entry a resource, by its key, as JSON; and
//	                          under !open how many are not released, under
//	                          !status the state in which the run is confirmed
//	                          to have ended
//	belay:ledgers             sorted set: the runs with something not released,
//	                          by the time at which that was first seen
//	belay:leaked              set: the holders of what is leaked, so that it can
//	                          be counted without reading all
const (
	ledgerPrefix = "belay:ledger:{"
	ledgersKey   = "belay:ledgers"
	leakedKey    = "belay:leaked"
	openField    = "!open"
	statusField  = "!status"
)

const (
	// keepFor is how long the ledger of a run that has released all is kept at the
	// least: the janitor looks that far back.
	keepFor = 7 * 24 * time.Hour
	// callFor bounds a call: who writes down what it acquires waits for it.
	callFor = 5 * time.Second
	// page is how many runs are read from the index at once.
	page = 100
)

// Ledger says of every run what it holds and what it gave back. It is an index
// and a memory for people: what it has lost is still known to Temporal, and to
// the hosts. Its methods are safe for concurrent use; a nil Ledger, of a worker
// without Redis, writes nothing and knows nothing.
type Ledger struct {
	rdb redis.UniversalClient
	// keep is how long the ledger of a run that has released all is kept; zero is
	// for ever.
	keep time.Duration
}

// NewLedger returns the ledger kept in Redis; nil for no Redis.
func NewLedger(rdb redis.UniversalClient) *Ledger {
	if rdb == nil {
		return nil
	}
	return &Ledger{rdb: rdb, keep: keepFor}
}

// Keep returns the same ledger, which keeps what it knows of a run that has
// released all for so long, zero for ever.
func (l *Ledger) Keep(keep time.Duration) *Ledger {
	if l == nil {
		return nil
	}
	return &Ledger{rdb: l.rdb, keep: keep}
}

// Renew keeps what is known of runs that are open from going: they may have
// released all long before they end.
func (l *Ledger) Renew(ctx context.Context, runKeys map[string]bool) error {
	if l == nil || l.keep == 0 {
		return nil
	}
	for part := range slices.Chunk(slices.Collect(maps.Keys(runKeys)), page) {
		_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, runKey := range part {
				// Those that hold something do not go, and are left so.
				p.ExpireXX(ctx, ledgerKey(runKey), l.keep)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("keeping the ledgers of open runs: %w", err)
		}
	}
	return nil
}

func ledgerKey(runKey string) string {
	// A brace would end the hash tag early.
	return ledgerPrefix + strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(runKey) + "}"
}

// noteScript writes an entry. One that was released stays so, unless it is
// acquired anew: who was stopped in between may come late.
//
//	KEYS[1] -> the run's ledger
//	ARGV    -> key of the entry, JSON of it, its state, ms to keep what is over, 0 for ever
//	Returns how many of the run are not released, the state before, and that after.
var noteScript = redis.NewScript(`
local old = redis.call('HGET', KEYS[1], ARGV[1])
local was = old and cjson.decode(old).state or 'none'
local is = was
if was ~= 'released' or ARGV[3] == 'acquiring' then
  is = ARGV[3]
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  local function open(state) return state ~= 'released' and state ~= 'none' and 1 or 0 end
  redis.call('HINCRBY', KEYS[1], '!open', open(ARGV[3]) - open(was))
end
local open = tonumber(redis.call('HGET', KEYS[1], '!open') or 0)
if open > 0 or ARGV[4] == '0' then redis.call('PERSIST', KEYS[1]) else redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
return {open, was, is}`)

// confirmScript writes the final state of a run.
//
//	KEYS[1] -> the run's ledger
//	ARGV    -> the state, ms to keep what is over
var confirmScript = redis.NewScript(`
redis.call('HSET', KEYS[1], '!status', ARGV[1])
local open = tonumber(redis.call('HGET', KEYS[1], '!open') or 0)
if open == 0 and ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return open`)

// Note writes an entry in its present state. It is called before each acquire
// and at each change after.
func (l *Ledger) Note(ctx context.Context, e Entry) error {
	if l == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	if e.Since.IsZero() {
		return fmt.Errorf("noting %s %s in the ledger: it has no time", e.Kind, e.Name)
	}
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("writing %s %s for the ledger: %w", e.Kind, e.Name, err)
	}
	got, err := noteScript.Run(ctx, l.rdb, []string{ledgerKey(e.RunKey)}, e.Key(), text, string(e.State), l.keep.Milliseconds()).Slice()
	if err == nil {
		err = l.indexNoted(ctx, &e, got)
	}
	if err != nil {
		return fmt.Errorf("noting %s %s in the ledger: %w", e.Kind, e.Name, err)
	}
	return nil
}

// indexNoted keeps the indexes in step with what noteScript has done.
func (l *Ledger) indexNoted(ctx context.Context, e *Entry, got []any) error {
	const answers = 3
	if len(got) != answers {
		return fmt.Errorf("it answered %v", got)
	}
	open, _ := got[0].(int64)
	was, is := run.ResourceState(fmt.Sprint(got[1])), run.ResourceState(fmt.Sprint(got[2]))
	return errors.Join(l.index(ctx, e.RunKey, int(open), e.Since), l.indexLeaked(ctx, e.Holder(), was, is))
}

// index keeps the run in the index while it has something open. The two keys may
// lie on two servers, so somebody may write between the count and the removal:
// hence the second look.
func (l *Ledger) index(ctx context.Context, runKey string, open int, at time.Time) error {
	if open == 0 {
		if err := l.rdb.ZRem(ctx, ledgersKey, runKey).Err(); err != nil {
			return err
		}
		open, err := l.rdb.HGet(ctx, ledgerKey(runKey), openField).Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if open == 0 {
			return nil
		}
	}
	return l.rdb.ZAddNX(ctx, ledgersKey, redis.Z{Score: float64(at.UnixMilli()), Member: runKey}).Err()
}

// Of returns what the ledger has of a run, in the order of nodes, attempts and
// times.
func (l *Ledger) Of(ctx context.Context, runKey string) ([]Entry, error) {
	if l == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	all, err := l.rdb.HGetAll(ctx, ledgerKey(runKey)).Result()
	if err != nil {
		return nil, fmt.Errorf("reading the ledger of run %s: %w", runKey, err)
	}
	delete(all, openField)
	delete(all, statusField)
	out := make([]Entry, 0, len(all))
	var errs []error
	for _, text := range all {
		var e Entry
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			errs = append(errs, fmt.Errorf("reading the ledger of run %s: %w", runKey, err))
			continue
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Attempt, b.Attempt), a.Since.Compare(b.Since), cmp.Compare(a.Key(), b.Key()))
	})
	return out, errors.Join(errs...)
}

// Unreleased goes through what no run has given back yet, those that live
// included, the longest known runs first. What is noted meanwhile may be left
// out. An error is yielded and does not end it, unless the index cannot be read.
func (l *Ledger) Unreleased(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		runs, err := l.runs(ctx)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for _, runKey := range runs {
			entries, err := l.Of(ctx, runKey)
			if err != nil && !yield(Entry{}, err) {
				return
			}
			open := 0
			for _, e := range entries {
				if !e.Open() {
					continue
				}
				if open++; !yield(e, nil) {
					return
				}
			}
			if err == nil && open == 0 {
				// Whoever released it last was stopped before it said so.
				if err := l.index(ctx, runKey, 0, time.Time{}); err != nil && !yield(Entry{}, fmt.Errorf("tidying the index of the ledger: %w", err)) {
					return
				}
			}
		}
	}
}

// runs are the runs in the index, the longest known first.
func (l *Ledger) runs(ctx context.Context) ([]string, error) {
	if l == nil {
		return nil, nil
	}
	var out []string
	for {
		part, err := l.rdb.ZRange(ctx, ledgersKey, int64(len(out)), int64(len(out))+page-1).Result()
		if err != nil {
			return nil, fmt.Errorf("reading the index of the ledger: %w", err)
		}
		out = append(out, part...)
		if len(part) < page {
			return out, nil
		}
	}
}

// Confirm writes down in which state a run has ended, when all that it held is
// given back or handed on: a closed workflow cannot say so any more.
func (l *Ledger) Confirm(ctx context.Context, runKey string, status run.Status) error {
	if l == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	err := confirmScript.Run(ctx, l.rdb, []string{ledgerKey(runKey)}, string(status), l.keep.Milliseconds()).Err()
	if err != nil {
		return fmt.Errorf("confirming the end of run %s in the ledger: %w", runKey, err)
	}
	return nil
}

// Confirmed returns the state in which a run is confirmed to have ended, "" where
// nobody has confirmed that.
func (l *Ledger) Confirmed(ctx context.Context, runKey string) (run.Status, error) {
	if l == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	status, err := l.rdb.HGet(ctx, ledgerKey(runKey), statusField).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("reading the ledger of run %s: %w", runKey, err)
	}
	return run.Status(status), nil
}

// Drop forgets a run. What it had leaked is counted until [Ledger.CheckLeaked].
func (l *Ledger) Drop(ctx context.Context, runKey string) error {
	if l == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	err := errors.Join(l.rdb.Del(ctx, ledgerKey(runKey)).Err(), l.rdb.ZRem(ctx, ledgersKey, runKey).Err())
	if err != nil {
		return fmt.Errorf("dropping the ledger of run %s: %w", runKey, err)
	}
	return nil
}
