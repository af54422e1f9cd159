package dedup_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
)

// bundle is what a test of the rules needs, on either Redis.
type bundle struct {
	*dedup.Claims
	rdb redis.UniversalClient
	// pass lets time pass; none of it is waited for.
	pass func(time.Duration)
}

// onEachRedis runs a test on miniredis, whose time is that of a bubble, and on a
// real server, where the times in the records are moved instead.
func onEachRedis(t *testing.T, test func(t *testing.T, b *bundle)) {
	t.Helper()
	t.Parallel()
	onTwo(t, test)
}

func onTwo(t *testing.T, test func(t *testing.T, b *bundle)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			test(t, bubbled(t, newMiniredis(t), dedup.Options{}))
		})
	})
	t.Run("redis-server", func(t *testing.T) {
		t.Parallel()
		rdb := redistest.Start(t).Client(t)
		test(t, newBundle(t, rdb))
	})
}

// onACluster runs a test on a Redis Cluster too.
func onACluster(t *testing.T, test func(t *testing.T, b *bundle)) {
	t.Helper()
	t.Parallel()
	onTwo(t, test)
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, newBundle(t, redistest.Cluster(t)))
	})
}

// bubbled is a bundle whose time is that of the bubble around the test: a sleep
// there takes none, and ends when all else has come to rest.
func bubbled(t testing.TB, rdb redis.UniversalClient, opts dedup.Options) *bundle {
	t.Helper()
	return &bundle{Claims: open(t, rdb, opts), rdb: rdb, pass: time.Sleep}
}

func newBundle(t testing.TB, rdb redis.UniversalClient) *bundle {
	t.Helper()
	claims := open(t, rdb, dedup.Options{})
	claims.HearAtOnce() // here is no tier, and time is real
	return &bundle{Claims: claims, rdb: rdb, pass: func(d time.Duration) { age(t, rdb, d) }}
}

// newMiniredis starts one that can live in a bubble.
func newMiniredis(t testing.TB) *redis.Client {
	t.Helper()
	_, rdb := redistest.Bubble(t)
	return rdb
}

func open(t testing.TB, rdb redis.UniversalClient, opts dedup.Options) *dedup.Claims {
	t.Helper()
	c, err := dedup.Open(rdb, opts)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// age makes all records older.
func age(t testing.TB, rdb redis.UniversalClient, d time.Duration) {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "belay:claim:{*}").Result()
	require.NoError(t, err)
	for _, key := range keys {
		fields, err := rdb.HGetAll(t.Context(), key).Result()
		require.NoError(t, err)
		if fields["claimed_at"] == "" {
			fields["claimed_at"] = fields["token"]
		}
		for _, name := range []string{"claimed_at", "ended_at", "until"} {
			if fields[name] != "" {
				us, err := strconv.ParseInt(fields[name], 10, 64)
				require.NoError(t, err)
				require.NoError(t, rdb.HSet(t.Context(), key, name, us-d.Microseconds()).Err())
			}
		}
	}
}

var (
	pipelineKey = dedup.Key{Tenant: "acme", Project: "web", Pipeline: "deploy", Name: "shop-v1"}
	stepKey     = dedup.Key{Tenant: "acme", Project: "web", Name: "shop-v1"}
)

// owner is the pipeline of a run.
func owner(run string) dedup.Owner {
	return dedup.Owner{RunKey: run, WorkflowID: "acme/web/deploy/k/shop-v1", RunID: run}
}

// by is a claim of a run under the pipeline key, by a request of its own.
func by(run string) dedup.Claim {
	return dedup.Claim{Key: pipelineKey, Owner: owner(run), Request: dedup.Request{ID: "request of " + run}}
}

// step is a claim of a step of a run under the step key, with a lease.
func step(run string) dedup.Claim {
	c := by(run)
	c.Key, c.Owner.Node, c.Lease = stepKey, "build/compile", 30*time.Second
	c.Request = dedup.Request{}
	return c
}

func (b *bundle) claim(t testing.TB, claim dedup.Claim, want dedup.Decision) dedup.Verdict {
	t.Helper()
	v, err := b.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, want, v.Decision)
	require.Equal(t, claim.Key, v.Record.Key)
	return v
}

func (b *bundle) now(t testing.TB) time.Time {
	t.Helper()
	now, err := b.Now(t.Context())
	require.NoError(t, err)
	return now
}

func held(r dedup.Record) dedup.Held { return dedup.Held{Key: r.Key, Owner: r.Owner, Token: r.Token} }

// settle ends a claim; completed ones block for an hour.
func (b *bundle) settle(t testing.TB, v dedup.Verdict, state dedup.State) {
	t.Helper()
	require.NoError(t, b.Settle(t.Context(), dedup.Settlement{Held: held(v.Record), State: state, Window: time.Hour}))
}

// run claims and settles.
func (b *bundle) run(t testing.TB, claim dedup.Claim, state dedup.State) dedup.Verdict {
	t.Helper()
	v := b.claim(t, claim, dedup.Granted)
	b.settle(t, v, state)
	return v
}

// many are n claims under n keys.
func many(run string, n int) []dedup.Claim {
	claims := make([]dedup.Claim, n)
	for i := range claims {
		claims[i] = by(run)
		claims[i].Key.Name = fmt.Sprint("key ", i)
	}
	return claims
}
