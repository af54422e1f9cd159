package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
)

// impatient is a client that waits no longer than its callers do.
func impatient(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: 200 * time.Millisecond, MaxRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

// everyCall calls everything there is.
func everyCall(ctx context.Context, b *bundle, v dedup.Verdict) map[string]error {
	calls := map[string]error{}
	_, calls["claim"] = b.Claim(ctx, by("b"))
	_, calls["batch"] = b.ClaimBatch(ctx, []dedup.Claim{by("b")})
	calls["renew"] = b.Renew(ctx, v.Record, time.Minute)
	calls["settle"] = b.Settle(ctx, dedup.Settlement{Held: held(v.Record), State: dedup.Completed})
	_, calls["lookup"] = b.Lookup(ctx, pipelineKey)
	_, calls["request"] = b.LookupRequest(ctx, pipelineKey, "request of a")
	_, calls["release"] = b.ReleaseByOperator(ctx, pipelineKey)
	_, calls["now"] = b.Now(ctx)
	_, _, calls["recovering"] = b.Recovering(ctx)
	for _, err := range b.Running(ctx) {
		calls["running"] = err
	}
	return calls
}

func TestEachCallSaysThatRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBundle(t, impatient(t, server.Addr))
	v := b.claim(t, by("a"), dedup.Granted)

	server.Pause(t)
	for name, err := range everyCall(t.Context(), b, v) {
		require.ErrorIs(t, err, dedup.ErrUnavailable, "frozen: %s", name)
	}
	gaveUp, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no patience"))
	for name, err := range everyCall(gaveUp, b, v) {
		require.Error(t, err, name)
		require.NotErrorIs(t, err, dedup.ErrUnavailable, "given up: %s", name)
	}
	server.Resume(t)
	// What was said while it was frozen may have been heard, and does no harm.
	looked := b.eventually(t)
	require.Contains(t, []dedup.State{dedup.Completed, dedup.Released, dedup.Running, ""}, looked)

	server.Stop(t)
	for name, err := range everyCall(t.Context(), b, v) {
		require.ErrorIs(t, err, dedup.ErrUnavailable, "down: %s", name)
	}
}

// eventually is the state of the key once Redis answers.
func (b *bundle) eventually(t testing.TB) dedup.State {
	t.Helper()
	var state dedup.State
	require.Eventually(t, func() bool {
		r, err := b.Lookup(t.Context(), pipelineKey)
		if r != nil {
			state = r.State
		}
		return err == nil
	}, 10*time.Second, 10*time.Millisecond, "redis does not answer again")
	return state
}

func TestRefusalsOfRedisItself(t *testing.T) {
	t.Parallel()
	for text, away := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":                                      true,
		"CLUSTERDOWN The cluster is down":                                                     true,
		"READONLY You can't write against a read only replica.":                               true,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":    true,
		"TRYAGAIN Multiple keys request during rehashing of slot":                             true,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL.":                 true,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to":     true,
		"OOM command not allowed when used memory > 'maxmemory'.":                             true,
		"NOREPLICAS Not enough good replicas to write.":                                       true,
		"ERR max number of clients reached":                                                   true,
		"NOAUTH Authentication required.":                                                     true,
		"WRONGPASS invalid username-password pair or user is disabled.":                       true,
		"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand.": true,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                   false,
	} {
		rdb := redis.NewClient(&redis.Options{
			Dialer: refusing(t, text), MaxRetries: -1, DisableIdentity: true, Protocol: 2,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		b := &bundle{Claims: open(t, rdb, dedup.Options{})}
		_, err := b.Claim(t.Context(), by("a"))
		require.ErrorContains(t, err, strings.Fields(text)[0])
		require.Equal(t, away, errors.Is(err, dedup.ErrUnavailable), text)
		require.NoError(t, rdb.Close())
	}
}

// refusing dials servers that answer each command with an error.
func refusing(t testing.TB, text string) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		group.Go(func() {
			defer func() { _ = server.Close() }()
			buf := make([]byte, 64<<10)
			for {
				if _, err := server.Read(buf); err != nil {
					return
				}
				if _, err := fmt.Fprintf(server, "-%s\r\n", text); err != nil {
					return
				}
			}
		})
		return client, nil
	}
}

func TestFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	b := newBundle(t, server.Client(t))
	other := by("x")
	other.Key.Name = "other"
	v := b.claim(t, other, dedup.Granted)
	b.run(t, by("a"), dedup.Completed)
	before := b.rdb.HGetAll(t.Context(), "belay:claim:{p/acme/web/deploy/shop-v1}").Val()
	require.NotEmpty(t, before)
	// By its limit and not by filling it: what clients take of its memory comes
	// and goes, and would make room now and then.
	require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	b.claim(t, by("b"), dedup.Duplicate)
	rerun := by("b")
	rerun.Rerun = true
	_, err := b.Claim(t.Context(), rerun)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorIs(t, b.Renew(t.Context(), v.Record, time.Minute), dedup.ErrUnavailable)
	_, err = b.ReleaseByOperator(t.Context(), pipelineKey)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.Equal(t, before, b.rdb.HGetAll(t.Context(), "belay:claim:{p/acme/web/deploy/shop-v1}").Val(), "all or nothing")

	require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	b.settle(t, v, dedup.Completed)
	b.claim(t, rerun, dedup.Granted)
}

func TestRedisRestartedEmpty(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBundle(t, impatient(t, server.Addr))
	_, _, err := b.Recovering(t.Context())
	require.NoError(t, err)
	ageEpochs(t, b.rdb, time.Hour)
	live := make([]dedup.Verdict, 0, 100)
	for _, claim := range many("a", 100) {
		live = append(live, b.claim(t, claim, dedup.Granted))
	}
	server.Stop(t)
	server.Restart(t)
	b.eventually(t)
	_, ok, err := b.Recovering(t.Context())
	require.NoError(t, err)
	require.True(t, ok, "so that nobody takes a missing claim for a free one")
	for _, v := range live {
		require.NoError(t, b.Renew(t.Context(), v.Record, 0))
	}
	verdicts, err := b.ClaimBatch(t.Context(), many("b", 100)) // its scripts are gone too
	require.NoError(t, err)
	for i, v := range verdicts {
		require.Equal(t, dedup.InFlight, v.Decision)
		require.Equal(t, live[i].Record, v.Record)
	}
}

// The bubble's clock says that it is the year 2000; Redis knows better.
func TestSkewedClock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := newBundle(t, server.Client(t))
	var skewed dedup.Record
	synctest.Test(t, func(t *testing.T) {
		rdb := impatient(t, server.Addr)
		s := newBundle(t, rdb)
		v := s.claim(t, step("a"), dedup.Granted)
		require.Greater(t, time.Until(v.At), 20*365*24*time.Hour)
		require.False(t, s.claim(t, step("b"), dedup.InFlight).Expired)
		require.NoError(t, s.Renew(t.Context(), v.Record, 30*time.Second))
		skewed = v.Record
	})
	require.False(t, b.claim(t, step("b"), dedup.InFlight).Expired)
	b.pass(31 * time.Second)
	require.True(t, b.claim(t, step("b"), dedup.InFlight).Expired)
	taker := step("b")
	taker.Dead = skewed.Token
	v := b.claim(t, taker, dedup.Granted)
	b.settle(t, v, dedup.Completed)
	synctest.Test(t, func(t *testing.T) {
		s := newBundle(t, impatient(t, server.Addr))
		s.claim(t, step("c"), dedup.Duplicate)
		require.ErrorIs(t, s.Renew(t.Context(), skewed, time.Minute), dedup.ErrNotOwner)
	})
}

func TestReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	high := func(run, name string) dedup.Claim {
		c := by(run)
		c.Key.Name, c.Replicate = name, true
		return c
	}
	alone := newBundle(t, server.Client(t))
	require.False(t, alone.claim(t, high("a", "alone"), dedup.Granted).Replicated)

	host, port, err := net.SplitHostPort(server.Addr)
	require.NoError(t, err)
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	require.Eventually(t, func() bool {
		info, err := replica.Client(t).Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}, 10*time.Second, 10*time.Millisecond, "the replica does not follow")

	b := newBundle(t, server.Client(t)) // one that has not counted yet
	// A busy machine may take longer than a claim waits.
	n := 0
	require.Eventually(t, func() bool {
		n++
		return b.claim(t, high("a", fmt.Sprint("k", n)), dedup.Granted).Replicated
	}, 20*time.Second, time.Millisecond, "no replica has it")
	far := newBundle(t, replica.Client(t))
	copied, err := far.rdb.Keys(t.Context(), fmt.Sprintf("belay:claim:{*/k%d}", n)).Result()
	require.NoError(t, err)
	require.Len(t, copied, 1)
	_, err = far.Claim(t.Context(), high("b", "fresh"))
	require.ErrorIs(t, err, dedup.ErrUnavailable, "a replica grants nothing")
	verdicts, err := b.ClaimBatch(t.Context(), []dedup.Claim{high("a", "1"), high("a", "2"), high("b", "1")})
	require.NoError(t, err)
	require.False(t, verdicts[2].Replicated, "it wrote nothing")

	replica.Pause(t)
	defer replica.Resume(t)
	require.False(t, b.claim(t, high("a", "slow"), dedup.Granted).Replicated, "it goes on without")
}
