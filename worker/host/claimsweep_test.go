package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/liveness"
	"belay.run/internal/redistest"
	"belay.run/internal/run"
)

// sweepBundle is a sweep over claims whose owners live or not as the test says.
type sweepBundle struct {
	*claimSweep

	mu      sync.Mutex
	swept   map[dedup.State]int
	answers map[string]liveness.Answer // by run key
	asked   map[string]int
}

func newSweep(t *testing.T, rdb redis.UniversalClient) *sweepBundle {
	t.Helper()
	claims, err := dedup.Open(rdb, dedup.Options{})
	require.NoError(t, err)
	t.Cleanup(claims.Close)
	b := &sweepBundle{swept: map[dedup.State]int{}, answers: map[string]liveness.Answer{}, asked: map[string]int{}}
	b.claimSweep = &claimSweep{
		rdb: rdb, claims: claims, audit: audit.New(rdb, audit.Options{}),
		host: "here", log: zaptest.NewLogger(t), swept: b.count,
		alive: func(_ context.Context, o dedup.Owner) liveness.Answer {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.asked[o.RunKey]++
			a, known := b.answers[o.RunKey]
			if !known {
				a = liveness.Answer{Alive: true}
			}
			return a
		},
	}
	return b
}

func (b *sweepBundle) count(s dedup.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.swept[s]++
}

// claim lets a run claim a key; node and lease are for steps.
func (b *sweepBundle) claim(t *testing.T, runKey, node, key string, lease time.Duration) dedup.Claim {
	t.Helper()
	c := dedup.Claim{
		Key:     dedup.Key{Tenant: "acme", Project: "web", Name: key},
		Owner:   dedup.Owner{RunKey: runKey, Node: node, WorkflowID: "acme/web/deploy/k/" + key, RunID: runKey},
		Request: dedup.Request{ID: "q-" + runKey}, Lease: lease,
	}
	if node == "" {
		c.Key.Pipeline = "deploy"
	}
	v, err := b.claims.Claim(t.Context(), c)
	require.NoError(t, err)
	require.True(t, v.Decision.Runs())
	return c
}

// later sweeps as if that time had passed.
func (b *sweepBundle) later(t *testing.T, d time.Duration) int {
	t.Helper()
	now, err := b.claims.Now(t.Context())
	require.NoError(t, err)
	n, err := b.all(t.Context(), now.Add(d))
	require.NoError(t, err)
	return n
}

func (b *sweepBundle) held(t *testing.T) int {
	t.Helper()
	n := 0
	for _, err := range b.claims.Running(t.Context()) {
		require.NoError(t, err)
		n++
	}
	return n
}

func TestSweepEndsClaimsOfTheDead(t *testing.T) {
	t.Parallel()
	for name, rdb := range map[string]redis.UniversalClient{
		"Redis": redistest.Start(t).Client(t), "Cluster": redistest.Cluster(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newSweep(t, rdb)
			live := b.claim(t, "live", "", "k0", 0)
			done := b.claim(t, "done", "", "k1", 0)
			b.claim(t, "killed", "", "k2", 0)
			b.claim(t, "gone", "", "k3", 0)
			b.claim(t, "killed", "build/x", "s1", 30*time.Second)
			b.claim(t, "killed", "build/y", "s2", 30*time.Second)
			b.claim(t, "live", "build/x", "s3", 30*time.Second)
			b.answers["done"] = liveness.Answer{Status: run.Succeeded}
			b.answers["killed"] = liveness.Answer{Status: run.Cancelled}
			b.answers["gone"] = liveness.Answer{}

			require.Zero(t, b.later(t, 50*time.Second), "all are young")
			require.Empty(t, b.asked)
			require.Equal(t, 5, b.later(t, 70*time.Second))
			require.Equal(t, map[string]int{"live": 1, "done": 1, "killed": 1, "gone": 1}, b.asked, "each run once")
			require.Equal(t, map[dedup.State]int{dedup.Completed: 1, dedup.Failed: 1, dedup.Canceled: 3}, b.swept)
			require.Equal(t, 2, b.held(t), "what lives keeps its own")

			// One that completed still blocks, one that was killed does not.
			again := done
			again.Owner = dedup.Owner{RunKey: "next", WorkflowID: "x", RunID: "next"}
			again.Request = dedup.Request{ID: "q-next"}
			v, err := b.claims.Claim(t.Context(), again)
			require.NoError(t, err)
			require.Equal(t, dedup.Duplicate, v.Decision)
			again.Key.Name = "k2"
			v, err = b.claims.Claim(t.Context(), again)
			require.NoError(t, err)
			require.Equal(t, dedup.Granted, v.Decision)
			again.Key = live.Key
			v, err = b.claims.Claim(t.Context(), again)
			require.NoError(t, err)
			require.Equal(t, dedup.InFlight, v.Decision)

			var entries []audit.Entry
			for e, err := range b.audit.Read(t.Context(), audit.Filter{Tenant: "acme", Decision: audit.Takeover}) {
				require.NoError(t, err)
				require.Equal(t, "deploy", e.Pipeline)
				require.Equal(t, "sweep of here", e.By)
				require.NotEmpty(t, e.Reason)
				entries = append(entries, e)
			}
			require.Len(t, entries, 5)
			require.Zero(t, b.later(t, 70*time.Second), "nothing is left to do")
		})
	}
}

func TestSweepLeavesLeasesThatRun(t *testing.T) {
	t.Parallel()
	b := newSweep(t, redistest.Start(t).Client(t))
	b.claim(t, "killed", "build/x", "s", time.Hour)
	b.answers["killed"] = liveness.Answer{Status: run.Cancelled}
	require.Zero(t, b.later(t, 50*time.Minute))
	require.Empty(t, b.asked)
	require.Equal(t, 1, b.later(t, 61*time.Minute))
}

func TestSweepTakesNothingWhileTemporalIsAway(t *testing.T) {
	t.Parallel()
	b := newSweep(t, redistest.Start(t).Client(t))
	b.claim(t, "r", "", "k", 0)
	b.answers["r"] = liveness.Answer{Alive: true, Unsure: true, Err: errors.New("away")}
	require.Zero(t, b.later(t, time.Hour))
	require.Equal(t, 1, b.held(t))
}

func TestOneWorkerSweeps(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	a, b := newSweep(t, rdb), newSweep(t, rdb)
	_, err := a.run(t.Context())
	require.NoError(t, err)
	_, err = b.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, "here", rdb.Get(t.Context(), claimSweepKey).Val())
	ttl := rdb.PTTL(t.Context(), claimSweepKey).Val()
	require.Positive(t, ttl)
	require.Less(t, ttl, claimSweepEvery, "else every second sweep would be left out")

	// Only the first looked: nothing is asked while the lock stands.
	b.claim(t, "r", "", "k", 0)
	b.answers["r"] = liveness.Answer{Status: run.Cancelled}
	old := time.Now().Add(-time.Hour).UnixMicro()
	require.NoError(t, rdb.HSet(t.Context(), "belay:claim:{p/acme/web/deploy/k}", "claimed_at", old).Err())
	n, err := b.run(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	require.Empty(t, b.asked)
	require.NoError(t, rdb.Del(t.Context(), claimSweepKey).Err())
	n, err = b.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n, "it had something to do")
}

func TestSweepEndsOneThatSettlesMeanwhile(t *testing.T) {
	t.Parallel()
	b := newSweep(t, redistest.Start(t).Client(t))
	for i := range 20 {
		b.claim(t, fmt.Sprint(i), "", fmt.Sprint(i), 0)
	}
	// While the sweep asks, the owners say themselves how they ended.
	b.alive = func(ctx context.Context, o dedup.Owner) liveness.Answer {
		r, err := b.claims.Lookup(ctx, dedup.Key{Tenant: "acme", Project: "web", Pipeline: "deploy", Name: o.RunKey})
		if err != nil || b.claims.Settle(ctx, dedup.Settlement{
			Held: dedup.Held{Key: r.Key, Owner: r.Owner, Token: r.Token}, State: dedup.Completed, Window: time.Hour,
		}) != nil {
			t.Error("could not settle", err)
		}
		return liveness.Answer{Status: run.Cancelled}
	}
	b.later(t, time.Hour)
	for i := range 20 {
		r, err := b.claims.Lookup(t.Context(), dedup.Key{Tenant: "acme", Project: "web", Pipeline: "deploy", Name: fmt.Sprint(i)})
		require.NoError(t, err)
		require.Equal(t, dedup.Completed, r.State)
	}
}
