package dedup_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"belay.run/internal/dedup"
)

func TestRunning(t *testing.T) {
	onACluster(t, func(t *testing.T, b *bundle) {
		t.Helper()
		const n = 1200
		verdicts, err := b.ClaimBatch(t.Context(), many("a", n))
		require.NoError(t, err)
		for i, v := range verdicts {
			if i%2 == 0 {
				b.settle(t, v, dedup.Completed)
			}
		}
		require.NoError(t, b.rdb.Set(t.Context(), "belay:claim:{x}", "no claim", 0).Err())
		found := map[string]bool{}
		for r, err := range b.Running(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, owner("a"), r.Owner)
			found[r.Key.Name] = true
		}
		require.Len(t, found, n/2)
		for _, err := range b.Running(t.Context()) {
			require.NoError(t, err)
			break // and it does not go on
		}
	})
}

func TestRunningSaysWhatIsDamaged(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		require.NoError(t, b.rdb.HSet(t.Context(), "belay:claim:{x}", "state", "running").Err())
		var errs []error
		for _, err := range b.Running(t.Context()) {
			errs = append(errs, err)
		}
		require.Len(t, errs, 1)
		require.ErrorContains(t, errs[0], "damaged record: belay:claim:{x}")
	})
}

func TestEndedClaimsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := bubbled(t, newMiniredis(t), dedup.Options{})
		b.run(t, by("a"), dedup.Completed)
		open := by("open")
		open.Key.Name = "open"
		b.claim(t, open, dedup.Granted)

		b.pass(24*time.Hour - time.Second)
		redelivered := by("a'")
		redelivered.Request = by("a").Request
		b.claim(t, redelivered, dedup.Redelivered)
		b.pass(time.Second)
		v := b.claim(t, redelivered, dedup.Granted)
		require.Equal(t, 1, v.Record.Generation, "the claim itself is remembered for longer")
		b.settle(t, v, dedup.Completed)
		b.pass(7*24*time.Hour + time.Hour)
		require.Equal(t, []string{"belay:claim:{p/acme/web/deploy/open}"}, b.rdb.Keys(t.Context(), "*").Val(),
			"nothing of those that ended, and only the end of its owner ends one that runs")
	})
}

func TestRecovering(t *testing.T) {
	onACluster(t, func(t *testing.T, b *bundle) {
		t.Helper()
		core, logged := observer.New(zapcore.WarnLevel)
		c := open(t, b.rdb, dedup.Options{Log: zap.New(core)})
		recovering := func() bool {
			since, ok, err := c.Recovering(t.Context())
			require.NoError(t, err)
			require.False(t, since.After(b.now(t)))
			return ok
		}
		require.True(t, recovering(), "a new Redis may be one that lost its memory")
		warned := logged.Len()
		require.Positive(t, warned)
		ageEpochs(t, b.rdb, time.Minute)
		require.False(t, recovering())
		require.Equal(t, warned, logged.Len())

		keys := b.rdb.Keys(t.Context(), "belay:epoch*").Val()
		require.NoError(t, b.rdb.Del(t.Context(), keys[0]).Err(), "one server lost its memory")
		require.True(t, recovering())
	})
}

// ageEpochs lets Redis remember for longer.
func ageEpochs(t testing.TB, rdb redis.UniversalClient, d time.Duration) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "belay:epoch*").Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		require.NoError(t, rdb.DecrBy(t.Context(), key, d.Microseconds()).Err())
	}
}

func TestBatch(t *testing.T) {
	onACluster(t, func(t *testing.T, b *bundle) {
		t.Helper()
		// 100 keys, ten of them named twice.
		claims := many("a", 90)
		for i := range 10 {
			again := claims[i*9]
			again.Owner, again.Request.ID = owner("b"), fmt.Sprint("again ", i)
			claims = append(claims, again)
		}
		for range 2 { // the second repeats the first, whose answer was lost
			verdicts, err := b.ClaimBatch(t.Context(), claims)
			require.NoError(t, err)
			require.Len(t, verdicts, 100)
			for i, v := range verdicts {
				require.Equal(t, i < 90, v.Decision.Runs(), i)
				require.Equal(t, claims[i].Key, v.Record.Key)
				require.Equal(t, owner("a"), v.Record.Owner)
			}
			require.NoError(t, b.rdb.ScriptFlush(t.Context()).Err())
		}
		none, err := b.ClaimBatch(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, none)
		_, err = b.ClaimBatch(t.Context(), []dedup.Claim{by("a"), {}})
		require.ErrorContains(t, err, "claim 1: a claim needs a key")
	})
}

func TestBatchLargerThanARoundTrip(t *testing.T) {
	onACluster(t, func(t *testing.T, b *bundle) {
		t.Helper()
		claims := many("a", 2500)
		claims = append(claims, many("b", 10)...)
		verdicts, err := b.ClaimBatch(t.Context(), claims)
		require.NoError(t, err)
		for i, v := range verdicts {
			require.Equal(t, i < 2500, v.Decision.Runs())
		}
	})
}
