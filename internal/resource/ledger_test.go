package resource_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"belay.run/internal/redistest"
	"belay.run/internal/resource"
	"belay.run/internal/run"
)

func entry(runKey, node string, attempt int, state run.ResourceState) resource.Entry {
	return resource.Entry{
		Owner: resource.Owner{RunKey: runKey, WorkflowID: "acme/web/shop/r/1", Node: node, Attempt: attempt},
		Kind:  "lock", Name: "deploy", Scope: resource.ScopeStep, State: state, Since: time.UnixMilli(1_700_000_000_000).UTC(),
	}
}

func unreleased(t *testing.T, l *resource.Ledger) []string {
	t.Helper()
	var out []string
	for e, err := range l.Unreleased(t.Context()) {
		require.NoError(t, err)
		out = append(out, e.RunKey+" "+e.Node+" "+string(e.State))
	}
	return out
}

func eachRedis(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	t.Parallel()
	t.Run("one server", func(t *testing.T) { t.Parallel(); test(t, redistest.Start(t).Client(t)) })
	t.Run("cluster", func(t *testing.T) { t.Parallel(); test(t, redistest.Cluster(t)) })
}

func TestLedgerKeepsWhatIsHeld(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) { //nolint:thelper // the test itself
		l := resource.NewLedger(rdb)
		ctx := t.Context()
		e := entry("run{1", "build/a", 1, run.ResourceAcquiring)
		e.ID, e.Release = "42", &resource.Command{Script: "rm x", Env: map[string]string{"A": "1"}}
		require.NoError(t, l.Note(ctx, e))
		got, err := l.Of(ctx, "run{1")
		require.NoError(t, err)
		require.Equal(t, []resource.Entry{e}, got)
		require.Equal(t, []string{"run{1 build/a acquiring"}, unreleased(t, l))

		require.NoError(t, l.Note(ctx, entry("run2", "build/a", 1, run.ResourceHeld)))
		require.NoError(t, l.Note(ctx, entry("run{1", "build/a", 1, run.ResourceReleased)))
		require.Equal(t, []string{"run2 build/a held"}, unreleased(t, l))
		// Who was stopped before it could say so comes late.
		require.NoError(t, l.Note(ctx, entry("run{1", "build/a", 1, run.ResourceHeld)))
		require.Equal(t, []string{"run2 build/a held"}, unreleased(t, l))
		require.Positive(t, rdb.PTTL(ctx, "belay:ledger:{run%7B1}").Val(), "what is over is kept for a while only")

		// The same name, acquired anew.
		require.NoError(t, l.Note(ctx, entry("run{1", "build/a", 1, run.ResourceAcquiring)))
		require.ElementsMatch(t, []string{"run{1 build/a acquiring", "run2 build/a held"}, unreleased(t, l))
		require.Equal(t, time.Duration(-1), rdb.PTTL(ctx, "belay:ledger:{run%7B1}").Val())

		require.NoError(t, l.Drop(ctx, "run{1"))
		require.Equal(t, []string{"run2 build/a held"}, unreleased(t, l))
	})
}

func TestLedgerConfirmsTheEndOfARun(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) { //nolint:thelper // the test itself
		l := resource.NewLedger(rdb)
		ctx := t.Context()
		status, err := l.Confirmed(ctx, "r")
		require.NoError(t, err)
		require.Empty(t, status)
		require.NoError(t, l.Note(ctx, entry("r", "a/b", 1, run.ResourceLeaked)))
		require.NoError(t, l.Confirm(ctx, "r", run.Cancelled))
		require.Equal(t, time.Duration(-1), rdb.PTTL(ctx, "belay:ledger:{r}").Val(), "what leaked is not forgotten")
		require.NoError(t, l.Note(ctx, entry("r", "a/b", 1, run.ResourceReleased)))
		require.Empty(t, unreleased(t, l))
		status, err = l.Confirmed(ctx, "r")
		require.NoError(t, err)
		require.Equal(t, run.Cancelled, status)
		got, err := l.Of(ctx, "r")
		require.NoError(t, err)
		require.Len(t, got, 1)
	})
}

// However states follow one another, a run is in the index exactly as long as
// something of it is not released.
func TestLedgerCountsWhatIsOpen(t *testing.T) {
	t.Parallel()
	l := resource.NewLedger(redistest.Start(t).Client(t))
	states := []run.ResourceState{
		run.ResourceAcquiring, run.ResourceHeld, run.ResourceReleasing, run.ResourceReleased, run.ResourceReleased, run.ResourceLeaked,
	}
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	empty := 0
	for range 500 {
		e := entry("r", fmt.Sprintf("s/%d", random.IntN(3)), 1, states[random.IntN(len(states))])
		require.NoError(t, l.Note(t.Context(), e))
		all, err := l.Of(t.Context(), "r")
		require.NoError(t, err)
		open := 0
		for _, e := range all {
			if e.Open() {
				open++
			}
		}
		require.Len(t, unreleased(t, l), open)
		if open == 0 {
			empty++
		}
	}
	require.Positive(t, empty)
}

// Steps of one run end and begin at once: the index must not lose the run.
func TestLedgerIndexUnderConcurrency(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	l := resource.NewLedger(rdb)
	var g errgroup.Group
	for i := range 16 {
		g.Go(func() error {
			node := fmt.Sprintf("s/%d", i)
			for range 50 {
				if err := l.Note(t.Context(), entry("r", node, 1, run.ResourceAcquiring)); err != nil {
					return err
				}
				if err := l.Note(t.Context(), entry("r", node, 1, run.ResourceReleased)); err != nil {
					return err
				}
			}
			if i == 7 {
				return l.Note(t.Context(), entry("r", node, 2, run.ResourceHeld))
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Equal(t, []string{"r s/7 held"}, unreleased(t, l))
}

func TestNoLedgerWithoutRedis(t *testing.T) {
	t.Parallel()
	l := resource.NewLedger(nil)
	require.NoError(t, l.Note(t.Context(), entry("r", "a", 1, run.ResourceHeld)))
	got, err := l.Of(t.Context(), "r")
	require.NoError(t, err)
	require.Empty(t, got)
	require.Empty(t, unreleased(t, l))
}

func TestLedgerCountsWhatIsLeaked(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) { //nolint:thelper // the test itself
		l := resource.NewLedger(rdb)
		ctx := t.Context()
		count := func() int {
			n, err := l.Leaked(ctx)
			require.NoError(t, err)
			return n
		}
		one, two := entry("r{1", "a/b", 1, run.ResourceLeaked), entry("r2", "a/b", 1, run.ResourceLeaked)
		require.NoError(t, l.Note(ctx, entry("r3", "a/b", 1, run.ResourceHeld)))
		for range 2 {
			require.NoError(t, l.Note(ctx, one))
			require.NoError(t, l.Note(ctx, two))
		}
		require.Equal(t, 2, count())
		require.NoError(t, l.Note(ctx, entry("r{1", "a/b", 1, run.ResourceReleased)))
		require.NoError(t, l.Note(ctx, one), "one who comes late")
		require.Equal(t, 1, count())

		// Somebody was stopped between the two writes.
		require.NoError(t, rdb.Del(ctx, "belay:leaked").Err())
		require.NoError(t, rdb.SAdd(ctx, "belay:leaked", one.Holder(), "gone|x").Err())
		require.NoError(t, l.CheckLeaked(ctx, map[string]bool{two.Holder(): true}))
		require.NoError(t, l.CheckLeaked(ctx, map[string]bool{two.Holder(): true, one.Holder(): true}))
		require.Equal(t, []string{two.Holder()}, rdb.SMembers(ctx, "belay:leaked").Val())
		require.NoError(t, l.CheckLeaked(ctx, map[string]bool{}))
		require.Equal(t, 1, count(), "it is leaked, whoever did not see it")
	})
}

func TestLedgerRemembersWhatIsOverdue(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) { //nolint:thelper // the test itself
		l := resource.NewLedger(rdb)
		for _, key := range []string{"a", "b"} {
			for _, want := range []bool{true, false, false} {
				first, err := l.MarkOverdue(t.Context(), key)
				require.NoError(t, err)
				require.Equal(t, want, first, key)
			}
		}
	})
}

func TestLedgerKeepsForAsLongAsItIsTold(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) { //nolint:thelper // the test itself
		ctx := t.Context()
		ttl := func() time.Duration { return rdb.PTTL(ctx, "belay:ledger:{r}").Val() }
		month := resource.NewLedger(rdb).Keep(30 * 24 * time.Hour)
		require.NoError(t, month.Note(ctx, entry("r", "a/b", 1, run.ResourceHeld)))
		require.NoError(t, month.Renew(ctx, map[string]bool{"r": true}))
		require.Equal(t, time.Duration(-1), ttl(), "what is held does not go")
		require.NoError(t, month.Note(ctx, entry("r", "a/b", 1, run.ResourceReleased)))
		require.Greater(t, ttl(), 29*24*time.Hour)

		// A run that is open is not forgotten although it has released all.
		require.NoError(t, rdb.Expire(ctx, "belay:ledger:{r}", time.Hour).Err())
		require.NoError(t, month.Renew(ctx, map[string]bool{"r": true, "unknown": true}))
		require.Greater(t, ttl(), 29*24*time.Hour)

		ever := resource.NewLedger(rdb).Keep(0)
		require.NoError(t, ever.Note(ctx, entry("r", "a/b", 1, run.ResourceReleased)))
		require.NoError(t, ever.Confirm(ctx, "r", run.Succeeded))
		require.NoError(t, ever.Renew(ctx, map[string]bool{"r": true}))
		require.Equal(t, time.Duration(-1), ttl())
	})
}
