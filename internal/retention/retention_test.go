package retention_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/liveness"
	"belay.run/internal/redistest"
	"belay.run/internal/retention"
	"belay.run/internal/store"
)

const day = 24 * time.Hour

// bundle is a sweeper over a store, whose clock a test moves: what is put lies at
// the present, and grows old as the clock goes on.
type bundle struct {
	store   store.Store
	open    liveness.All
	away    error
	ahead   time.Duration
	most    int
	rules   retention.Rules
	removed map[retention.Kind]int
}

func month() retention.Rules {
	return retention.Rules{Logs: 30 * day, Artifacts: 30 * day, Batches: 30 * day}
}

func (b *bundle) put(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		_, err := b.store.Put(t.Context(), key, strings.NewReader("x"), 0)
		require.NoError(t, err)
	}
}

func (b *bundle) keys(t *testing.T) []string {
	t.Helper()
	keys := []string{}
	for info, err := range b.store.List(t.Context(), "") {
		require.NoError(t, err)
		if info.Key != "retention/last" {
			keys = append(keys, info.Key)
		}
	}
	return keys
}

func (b *bundle) sweeper() *retention.Sweeper {
	return retention.New(retention.Config{
		Store: b.store, Rules: b.rules, Most: b.most,
		Open:    func(context.Context) (*liveness.All, error) { return &b.open, b.away },
		Now:     func() time.Time { return time.Now().Add(b.ahead) },
		Removed: func(kind retention.Kind, n int) { b.removed[kind] += n },
	})
}

func (b *bundle) sweep(t *testing.T) *retention.Result {
	t.Helper()
	res, err := b.sweeper().Sweep(t.Context())
	require.NoError(t, err)
	return res
}

// onEachStore runs a test with a directory and with Redis.
func onEachStore(t *testing.T, test func(t *testing.T, b *bundle)) {
	t.Helper()
	open := func(t *testing.T, location string, rdb redis.UniversalClient) *bundle {
		t.Helper()
		st, err := store.Open(t.Context(), location, rdb)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, st.Close()) })
		return &bundle{store: st, rules: month(), removed: map[retention.Kind]int{}}
	}
	t.Run("Dir", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, "file://"+t.TempDir(), nil))
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, "redis", redistest.Start(t).Client(t)))
	})
}

func TestSweepRemovesWhatIsTooOld(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, b *bundle) {
		t.Helper()
		b.put(t, "logs/run-1/build/compile/1", "logs/run-1/build/compile/2", "logs/run-2/a/1", "source/aa", "artifacts/bb",
			"batches/b1/tasks/0", "batches/b1/results/0", "claims/run-1/build/x", "workers/w1", "elsewhere/x")
		b.ahead = 29 * day
		require.False(t, b.sweep(t).Any())
		require.Len(t, b.keys(t), 9, "the report of a worker that is gone needs no month")

		b.ahead = 31 * day
		require.Equal(t, &retention.Result{Logs: 2, Artifacts: 2, Batches: 1}, b.sweep(t))
		require.ElementsMatch(t, []string{"claims/run-1/build/x", "elsewhere/x"}, b.keys(t),
			"the outputs of a key stay as long as a window may last")
		require.Equal(t, map[retention.Kind]int{retention.Logs: 2, retention.Artifacts: 2, retention.Batches: 1}, b.removed)
		require.False(t, b.sweep(t).Any(), "once more changes nothing")

		b.ahead = 41 * day
		require.Equal(t, &retention.Result{Artifacts: 1}, b.sweep(t))
		require.Equal(t, []string{"elsewhere/x"}, b.keys(t))
	})
}

func TestSweepLeavesWhatIsOpen(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, b *bundle) {
		t.Helper()
		b.put(t, "logs/open/a/1", "logs/closed/a/1", "claims/open/a", "source/aa", "artifacts/bb", "batches/b1/tasks/0")
		b.ahead = 100 * day
		b.open = liveness.All{Runs: map[string]bool{"open": true}, Oldest: time.Now()}
		require.Equal(t, &retention.Result{Logs: 1}, b.sweep(t))
		require.ElementsMatch(t, []string{"logs/open/a/1", "claims/open/a", "source/aa", "artifacts/bb", "batches/b1/tasks/0"}, b.keys(t))

		// What has begun long after the archives were stored cannot need them.
		b.open.Oldest = time.Now().Add(2 * day)
		require.Equal(t, &retention.Result{Artifacts: 2, Batches: 1}, b.sweep(t))
		require.ElementsMatch(t, []string{"logs/open/a/1", "claims/open/a"}, b.keys(t))

		b.open = liveness.All{}
		require.Equal(t, &retention.Result{Logs: 1, Artifacts: 1}, b.sweep(t))
		require.Empty(t, b.keys(t))
	})
}

func TestSweepLeavesARunThatStillWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), "file://"+dir, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	b := &bundle{store: st, rules: month(), removed: map[retention.Kind]int{}}
	b.put(t, "logs/r/a/1", "logs/r/a/2", "batches/b/tasks/0", "batches/b/results/0")
	old := time.Now().Add(-100 * day)
	for _, pattern := range []string{"logs*/r*/a*/1*", "batches*/b*/tasks*/0*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.Len(t, found, 1, pattern)
		require.NoError(t, os.Chtimes(found[0], old, old))
	}
	require.False(t, b.sweep(t).Any(), "the youngest object counts")
	require.Len(t, b.keys(t), 4)
}

func TestSweepIsBounded(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, b *bundle) {
		t.Helper()
		b.put(t, "logs/r1/a/1", "logs/r2/a/1", "logs/r2/a/2", "logs/r3/a/1")
		b.ahead, b.most = 31*day, 2
		require.Equal(t, &retention.Result{Logs: 2, More: true}, b.sweep(t))
		require.Equal(t, &retention.Result{Logs: 1}, b.sweep(t))
	})
}

func TestZeroKeepsForEver(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, b *bundle) {
		t.Helper()
		b.put(t, "logs/r1/a/1", "source/aa", "artifacts/bb", "claims/r1/a", "batches/b1/tasks/0")
		b.ahead, b.rules = 10_000*day, retention.Rules{}
		require.False(t, b.sweep(t).Any())
		require.Len(t, b.keys(t), 5)
		b.rules.Batches = day
		require.Equal(t, &retention.Result{Batches: 1}, b.sweep(t))
	})
}

func TestNothingIsRemovedWhileNobodyKnowsWhatIsOpen(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, b *bundle) {
		t.Helper()
		b.put(t, "logs/r1/a/1", "source/aa")
		b.ahead, b.away = 1000*day, errors.New("temporal is away")
		res, err := b.sweeper().Sweep(t.Context())
		require.ErrorContains(t, err, "temporal is away")
		require.False(t, res.Any())
		require.Len(t, b.keys(t), 2)
	})
}

func TestWorkersTakeTurns(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, b *bundle) {
		t.Helper()
		due := func() bool {
			ok, err := b.sweeper().Due(t.Context())
			require.NoError(t, err)
			return ok
		}
		require.True(t, due(), "nobody has swept it yet")
		require.False(t, due())
		b.ahead = retention.Every + time.Minute
		require.True(t, due())
	})
}
