package dedup_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/dedup"
)

// published is the algorithm that is commonly published for this: look in a
// local cache, GET from Redis, SETEX, run, and note the end in a finally. It is
// here to show its faults beside what this package does in their place.
type published struct {
	rdb   redis.UniversalClient
	local sync.Map // of remembered, by key
	// kind makes it block on completed too, which is not always published.
	kind bool
	// between runs between GET and SETEX.
	between func()
}

// remembered is an entry of the local cache.
type remembered struct {
	state string
	until time.Time
}

const publishedTTL = 5 * time.Minute

// run runs the task unless it takes it for a duplicate.
func (p *published) run(ctx context.Context, key string, task func() error) (ran bool, err error) {
	if v, ok := p.local.Load(key); ok {
		if r, ok := v.(remembered); ok && time.Now().Before(r.until) && p.blocks(r.state) {
			return false, nil
		}
	}
	state, err := p.rdb.Get(ctx, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, err
	}
	if p.blocks(state) {
		p.remember(key, state)
		return false, nil
	}
	if p.between != nil {
		p.between()
	}
	if err := p.note(ctx, key, "running"); err != nil {
		return false, err
	}
	if err = task(); err != nil {
		if err := p.note(ctx, key, "failed"); err != nil {
			return true, err
		}
	}
	// finally
	return true, errors.Join(err, p.note(ctx, key, "completed"))
}

func (p *published) blocks(state string) bool {
	return state == "running" || p.kind && state == "completed"
}

func (p *published) note(ctx context.Context, key, state string) error {
	p.remember(key, state)
	return p.rdb.SetEx(ctx, key, state, publishedTTL).Err()
}

func (p *published) remember(key, state string) {
	p.local.Store(key, remembered{state, time.Now().Add(publishedTTL)})
}

// faults runs a test with two workers of each algorithm, in a bubble: all time
// that passes is b's to pass.
func faults(t *testing.T, test func(t *testing.T, p1, p2 *published, a, b *bundle)) {
	t.Helper()
	inBubble(t, func(t *testing.T, a, b *bundle) {
		t.Helper()
		test(t, &published{rdb: a.rdb}, &published{rdb: b.rdb}, a, b)
	})
}

var errTask = errors.New("the task failed")

func succeed() error { return nil }
func fail() error    { return errTask }

func TestPublishedTwoPassBetweenGetAndSetex(t *testing.T) {
	faults(t, func(t *testing.T, p1, p2 *published, a, b *bundle) {
		t.Helper()
		var second bool
		p1.between = func() {
			var err error
			second, err = p2.run(t.Context(), "k", succeed)
			require.NoError(t, err)
		}
		first, err := p1.run(t.Context(), "k", succeed)
		require.NoError(t, err)
		require.True(t, first && second)

		// One script: nobody can come between. Many try at once.
		var group sync.WaitGroup
		runs := make(chan string, 100)
		for i := range 100 {
			worker, run := []*bundle{a, b}[i%2], string(rune('A'+i))
			group.Go(func() {
				if v, err := worker.Claim(t.Context(), by(run)); err == nil && v.Decision.Runs() {
					runs <- run
				}
			})
		}
		group.Wait()
		require.Len(t, runs, 1)
	})
}

func TestPublishedLocalRunningOutlivesTheRun(t *testing.T) {
	faults(t, func(t *testing.T, p1, p2 *published, a, b *bundle) {
		t.Helper()
		_, err := p1.run(t.Context(), "k", func() error {
			_, err := p2.run(t.Context(), "k", succeed) // sees running
			return errors.Join(err, errTask)
		})
		require.ErrorIs(t, err, errTask)
		b.pass(4 * time.Minute)
		ran, err := p2.run(t.Context(), "k", succeed)
		require.NoError(t, err)
		require.False(t, ran, "the retry is blocked by a run that failed minutes ago")

		v := a.claim(t, by("a"), dedup.Granted)
		b.claim(t, by("b"), dedup.InFlight)
		a.settle(t, v, dedup.Failed)
		b.claim(t, by("b"), dedup.Granted)
	})
}

func TestPublishedFinallyOverwritesFailed(t *testing.T) {
	faults(t, func(t *testing.T, p1, _ *published, a, b *bundle) {
		t.Helper()
		_, err := p1.run(t.Context(), "k", fail)
		require.ErrorIs(t, err, errTask)
		require.Equal(t, "completed", p1.rdb.Get(t.Context(), "k").Val())

		v := a.run(t, by("a"), dedup.Failed)
		s := dedup.Settlement{Held: held(v.Record), State: dedup.Completed, Window: time.Hour}
		require.ErrorIs(t, a.Settle(t.Context(), s), dedup.ErrNotOwner)
		b.claim(t, by("b"), dedup.Granted)
	})
}

func TestPublishedCompletedRunsAgain(t *testing.T) {
	faults(t, func(t *testing.T, p1, p2 *published, a, b *bundle) {
		t.Helper()
		for _, p := range []*published{p1, p2} {
			ran, err := p.run(t.Context(), "k", succeed)
			require.NoError(t, err)
			require.True(t, ran)
		}

		a.run(t, by("a"), dedup.Completed)
		b.pass(20 * time.Second)
		a.claim(t, by("b"), dedup.Duplicate)
		b.claim(t, by("b"), dedup.Duplicate)
	})
}

func TestPublishedKeyHasNoTenant(t *testing.T) {
	faults(t, func(t *testing.T, p1, p2 *published, a, b *bundle) {
		t.Helper()
		p1.kind, p2.kind = true, true
		_, err := p1.run(t.Context(), "deploy-v1", succeed) // of one tenant
		require.NoError(t, err)
		ran, err := p2.run(t.Context(), "deploy-v1", succeed) // of another
		require.NoError(t, err)
		require.False(t, ran)

		a.run(t, by("a"), dedup.Completed)
		other := by("b")
		other.Key.Tenant = "umbrella"
		b.claim(t, other, dedup.Granted)
	})
}

func TestPublishedCrashBlocksForTheWholeTTL(t *testing.T) {
	faults(t, func(t *testing.T, _, p2 *published, a, b *bundle) {
		t.Helper()
		require.NoError(t, p2.rdb.SetEx(t.Context(), "k", "running", publishedTTL).Err()) // and dies
		b.pass(publishedTTL - time.Second)
		ran, err := p2.run(t.Context(), "k", succeed)
		require.NoError(t, err)
		require.False(t, ran)

		a.claim(t, by("a"), dedup.Granted) // and dies
		taker := by("b")
		taker.Dead = b.claim(t, by("b"), dedup.InFlight).Record.Token
		b.claim(t, taker, dedup.Granted)
	})
}

func TestPublishedTTLEndsUnderALongRun(t *testing.T) {
	faults(t, func(t *testing.T, p1, p2 *published, a, b *bundle) {
		t.Helper()
		var second bool
		_, err := p1.run(t.Context(), "k", func() error {
			b.pass(publishedTTL)
			var err error
			second, err = p2.run(t.Context(), "k", succeed)
			return err
		})
		require.NoError(t, err)
		require.True(t, second, "beside the first")

		a.claim(t, step("a"), dedup.Granted)
		b.pass(time.Hour)
		require.True(t, b.claim(t, step("b"), dedup.InFlight).Expired, "worth asking after, no more")
	})
}

func TestPublishedKeyOfRunAndRetryCatchesNothing(t *testing.T) {
	faults(t, func(t *testing.T, p1, p2 *published, a, b *bundle) {
		t.Helper()
		p1.kind, p2.kind = true, true
		for key, p := range map[string]*published{"run 1/0": p1, "run 2/0": p2} {
			ran, err := p.run(t.Context(), key, succeed)
			require.NoError(t, err)
			require.True(t, ran)
		}

		a.run(t, by("run 1"), dedup.Completed)
		b.claim(t, by("run 2"), dedup.Duplicate)
	})
}

func TestOwnRetriesAreNoDuplicates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := bubbled(t, newMiniredis(t), dedup.Options{Tier: true})
		token := b.claim(t, step("a"), dedup.Granted).Record.Token
		for range 5 {
			b.pass(time.Minute)
			v := b.claim(t, step("a"), dedup.Resumed)
			require.Greater(t, v.Record.Token, token)
			token = v.Record.Token
		}
	})
}
