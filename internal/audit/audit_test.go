package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"belay.run/internal/audit"
	"belay.run/internal/config"
	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
)

// onEachRedis runs a test on each kind of Redis that the audit is kept in.
func onEachRedis(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	t.Parallel()
	for name, open := range map[string]func(t testing.TB) redis.UniversalClient{
		"Miniredis": func(t testing.TB) redis.UniversalClient {
			t.Helper()
			rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
			t.Cleanup(func() { require.NoError(t, rdb.Close()) })
			return rdb
		},
		"Redis":   func(t testing.TB) redis.UniversalClient { t.Helper(); return redistest.Start(t).Client(t) },
		"Cluster": redistest.Cluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// blocked is an entry of a duplicate.
func blocked(tenant, key, delivery string) audit.Entry {
	return audit.Entry{
		Tenant: tenant, Project: "web", Pipeline: "deploy", Key: key, Owner: tenant + "/web/deploy/k/" + key,
		OwnerRun: "r1", By: "ada@box", RootCause: audit.DoubleTrigger, Decision: audit.Attached,
		RequestID: "q-" + delivery, Delivery: delivery, Tier: audit.TierRedis,
	}
}

func read(t *testing.T, l *audit.Log, f audit.Filter) []audit.Entry {
	t.Helper()
	var all []audit.Entry
	for e, err := range l.Read(t.Context(), f) {
		require.NoError(t, err)
		all = append(all, e)
	}
	return all
}

func keys(entries []audit.Entry) string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Key
	}
	return strings.Join(names, " ")
}

func TestRootCause(t *testing.T) {
	t.Parallel()
	original := dedup.Request{ID: "q1", Sender: "ada@box"}
	for _, tc := range []struct {
		name string
		this dedup.Request
		want audit.Cause
	}{
		{"SameRequestSameSender", dedup.Request{ID: "q1", Sender: "ada@box"}, audit.ClientRetry},
		{"SameRequestOtherSender", dedup.Request{ID: "q1", Sender: "broker-2"}, audit.Redelivery},
		{"SameRequestNobody", dedup.Request{ID: "q1"}, audit.Redelivery},
		{"OtherRequestSameSender", dedup.Request{ID: "q2", Sender: "ada@box"}, audit.DoubleTrigger},
		{"OtherRequestOtherSender", dedup.Request{ID: "q2", Sender: "bob@box"}, audit.CrossInstance},
		{"NothingKnown", dedup.Request{}, audit.CrossInstance},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, audit.RootCause(original, tc.this))
		})
	}
	require.Equal(t, audit.CrossInstance, audit.RootCause(dedup.Request{}, dedup.Request{}), "two nobodies are not the same")
}

func TestAnEntryIsReadAsItWasWritten(t *testing.T) {
	onEachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		l := audit.New(rdb, audit.Options{})
		want := blocked("acme", "shop-v1 {ü}", "d1")
		want.Node, want.Mismatch, want.Reason, want.Run = "build/x", true, "because", "acme/web/deploy/r/1"
		require.NoError(t, l.Write(t.Context(), want))
		got := read(t, l, audit.Filter{Tenant: "acme"})
		require.Len(t, got, 1)
		require.WithinDuration(t, time.Now(), got[0].At, time.Minute)
		want.At = got[0].At
		require.Equal(t, want, got[0])
		require.Equal(t, "acme/web/deploy/k/shop-v1 {ü}@r1", got[0].Ref())
	})
}

func TestADeliveryIsWrittenOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		core, lines := observer.New(zap.InfoLevel)
		var heard int
		l := audit.New(rdb, audit.Options{Logger: zap.New(core), Observe: func(*audit.Entry, bool) { heard++ }})
		write := func(change func(e *audit.Entry)) {
			e := blocked("acme", "k", "d1")
			change(&e)
			require.NoError(t, l.Write(t.Context(), e))
		}
		write(func(*audit.Entry) {})
		// The starter and the claim inside find the same duplicate.
		write(func(e *audit.Entry) { e.Tier, e.Decision = audit.TierTemporal, audit.Answered })
		require.Len(t, read(t, l, audit.Filter{}), 1)
		require.Equal(t, 1, heard)
		require.Equal(t, 1, lines.FilterMessage("Duplicate task detected").Len())

		// Others are entries of their own.
		write(func(e *audit.Entry) { e.Delivery = "d2" })
		write(func(e *audit.Entry) { e.Key = "k2" })
		write(func(e *audit.Entry) { e.Node = "build/x" })
		write(func(e *audit.Entry) { e.Decision = audit.Takeover })
		require.Len(t, read(t, l, audit.Filter{}), 5)

		// Without a delivery the request id counts, without either every write.
		for range 2 {
			write(func(e *audit.Entry) { e.Delivery = "" })
		}
		require.Len(t, read(t, l, audit.Filter{}), 6)
		for range 2 {
			write(func(e *audit.Entry) { e.Delivery, e.RequestID = "", "" })
		}
		require.Len(t, read(t, l, audit.Filter{}), 8)
	})
}

func TestManyWritersOfOneDelivery(t *testing.T) {
	onEachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		l := audit.New(rdb, audit.Options{})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for i := range 5 {
					if err := l.Write(t.Context(), blocked("acme", "k", fmt.Sprint(i))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		require.Len(t, read(t, l, audit.Filter{}), 5)
	})
}

func TestFilters(t *testing.T) {
	onEachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		l := audit.New(rdb, audit.Options{})
		write := func(tenant, key string, change func(e *audit.Entry)) {
			e := blocked(tenant, key, key)
			change(&e)
			require.NoError(t, l.Write(t.Context(), e))
		}
		write("acme", "a", func(*audit.Entry) {})
		write("acme", "b", func(e *audit.Entry) { e.Project = "infra" })
		write("{b}eta", "c", func(e *audit.Entry) { e.Pipeline = "migrate" })
		write("acme", "d", func(e *audit.Entry) { e.RootCause = audit.Redelivery })
		write("{b}eta", "e", func(e *audit.Entry) { e.Decision = audit.Rejected })
		for _, tc := range []struct {
			filter audit.Filter
			want   string
		}{
			{audit.Filter{Oldest: true}, "a b c d e"},
			{audit.Filter{Tenant: "acme", Oldest: true}, "a b d"},
			{audit.Filter{Tenant: "nobody"}, ""},
			{audit.Filter{Project: "infra"}, "b"},
			{audit.Filter{Pipeline: "migrate"}, "c"},
			{audit.Filter{RootCause: audit.Redelivery}, "d"},
			{audit.Filter{Decision: audit.Rejected}, "e"},
			{audit.Filter{Key: "a"}, "a"},
			{audit.Filter{Limit: 2, Tenant: "acme", Oldest: true}, "a b"},
			{audit.Filter{Limit: 1, Tenant: "acme"}, "d"},
			{audit.Filter{Since: time.Now().Add(time.Minute)}, ""},
			{audit.Filter{Until: time.Now().Add(-time.Minute)}, ""},
			{audit.Filter{Since: time.Now().Add(-time.Minute), Until: time.Now().Add(time.Minute), Oldest: true}, "a b c d e"},
		} {
			got := strings.Fields(keys(read(t, l, tc.filter)))
			// Of two tenants in one millisecond either may come first.
			slices.Sort(got)
			require.Equal(t, tc.want, strings.Join(got, " "), "%+v", tc.filter)
		}
		tenants, err := l.Tenants(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"acme", "{b}eta"}, tenants)
	})
}

// An entry may have waited in a worker for Redis to come back. It is of the time
// of its decision, and of no other.
func TestAnEntryThatWaitedIsOfTheTimeOfItsDecision(t *testing.T) {
	t.Parallel()
	l := audit.New(redistest.Start(t).Client(t), audit.Options{})
	e := blocked("acme", "k", "d1")
	e.At = time.Now().UTC().Add(-20 * time.Hour)
	require.NoError(t, l.Write(t.Context(), e))
	midnight := e.At.Add(10 * time.Minute)
	for _, oldest := range []bool{false, true} {
		require.Equal(t, "k", keys(read(t, l, audit.Filter{Until: midnight, Oldest: oldest})))
		require.Empty(t, read(t, l, audit.Filter{Since: midnight, Oldest: oldest}))
	}
}

func TestReadsPageByPage(t *testing.T) {
	onEachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		l := audit.New(rdb, audit.Options{})
		const each = 450 // more than two pages
		for i := range each {
			for _, tenant := range []string{"a", "b"} {
				require.NoError(t, l.Write(t.Context(), blocked(tenant, fmt.Sprintf("%03d", i), fmt.Sprint(i))))
			}
		}
		for _, oldest := range []bool{false, true} {
			seen := make(map[string]bool)
			last := ""
			for _, e := range read(t, l, audit.Filter{Oldest: oldest}) {
				seen[e.Tenant+e.Key] = true
				if e.Tenant == "a" {
					require.True(t, last == "" || (last < e.Key) == oldest, "%s after %s", e.Key, last)
					last = e.Key
				}
			}
			require.Len(t, seen, 2*each)
		}
		var out bytes.Buffer
		n, err := l.Export(t.Context(), &out, audit.Filter{Tenant: "b"})
		require.NoError(t, err)
		require.Equal(t, each, n)
		dec := json.NewDecoder(&out)
		for i := range each {
			var e audit.Entry
			require.NoError(t, dec.Decode(&e))
			require.Equal(t, fmt.Sprintf("%03d", i), e.Key)
		}
		require.False(t, dec.More())
	})
}

func TestBounded(t *testing.T) {
	onEachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		const most = 300
		l := audit.New(rdb, audit.Options{Entries: most, Retention: time.Hour})
		for i := range 3 * most {
			require.NoError(t, l.Write(t.Context(), blocked("acme", fmt.Sprint(i), fmt.Sprint(i))))
		}
		got := read(t, l, audit.Filter{})
		require.GreaterOrEqual(t, len(got), most)
		require.LessOrEqual(t, len(got), most+100, "Redis drops whole nodes of a hundred entries")
		require.Equal(t, fmt.Sprint(3*most-1), got[0].Key, "the newest stays")
		require.EqualValues(t, most, rdb.ZCard(t.Context(), "belay:audit:{acme}:seen").Val())
		for _, key := range []string{"belay:audit:{acme}", "belay:audit:{acme}:seen"} {
			require.Positive(t, rdb.PTTL(t.Context(), key).Val(), key)
		}
	})
}

func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	l := audit.New(rdb, audit.Options{})
	e := blocked("acme", strings.Repeat("ü", 5000), "d")
	e.Reason = strings.Repeat("x", 1<<20)
	require.NoError(t, l.Write(t.Context(), e))
	got := read(t, l, audit.Filter{})[0]
	require.LessOrEqual(t, len(got.Key), 1100)
	require.LessOrEqual(t, len(got.Reason), 1100)
	require.True(t, strings.HasSuffix(got.Key, "ü…"))
}

func TestAFullRedisIsNamed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	rdb := server.Client(t)
	core, lines := observer.New(zap.InfoLevel)
	lost := 0
	l := audit.New(rdb, audit.Options{Logger: zap.New(core), Observe: func(_ *audit.Entry, l bool) {
		if l {
			lost++
		}
	}})
	require.NoError(t, l.Write(t.Context(), blocked("acme", "k", "d0")))
	// By its limit and not by filling it: what clients take of its memory comes
	// and goes, and would make room now and then.
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	err := l.Write(t.Context(), blocked("acme", "k", "d1"))
	require.ErrorIs(t, err, audit.ErrFull)
	require.ErrorContains(t, err, "maxmemory")
	require.Equal(t, 1, lost)
	require.Equal(t, 1, lines.FilterMessage("could not write an audit entry").Len())
	require.Len(t, read(t, l, audit.Filter{}), 1, "reading still works")
}

func TestASilentRedisHoldsUpNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, err := config.NewRedis(server.URL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	l := audit.New(rdb, audit.Options{Timeout: 50 * time.Millisecond, Later: true})
	require.NoError(t, l.Write(t.Context(), blocked("acme", "before", "d0")))
	server.Pause(t)
	began := time.Now()
	require.Error(t, l.Write(t.Context(), blocked("acme", "meanwhile", "d1")))
	ended := time.Now()
	require.ErrorIs(t, l.Flush(t.Context()), context.DeadlineExceeded)
	server.Resume(t)
	require.Eventually(t, func() bool { return l.Flush(t.Context()) == nil }, time.Minute, 10*time.Millisecond)
	require.NoError(t, l.Write(t.Context(), blocked("acme", "after", "d2")))
	got := read(t, l, audit.Filter{Oldest: true})
	require.Equal(t, "before meanwhile after", keys(got))
	require.WithinRange(t, got[1].At, began.Add(-time.Second), ended.Add(time.Second))
}

func TestWhatIsPutAsideIsWrittenOnceByAllWhoFlush(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var heard atomic.Int32
	rdb := server.Client(t)
	l := audit.New(rdb, audit.Options{Later: true, Observe: func(*audit.Entry, bool) { heard.Add(1) }})
	server.Stop(t)
	const n = 10
	for i := range n {
		require.Error(t, l.Write(t.Context(), blocked("acme", "k", fmt.Sprint(i))))
	}
	server.Restart(t)
	require.Eventually(t, func() bool { return rdb.Ping(t.Context()).Err() == nil }, time.Minute, 10*time.Millisecond)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := l.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Len(t, read(t, l, audit.Filter{Tenant: "acme"}), n)
	require.EqualValues(t, n, heard.Load())
}

func TestATenantThatCannotBeNotedCostsNoEntry(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	core, lines := observer.New(zap.InfoLevel)
	l := audit.New(rdb, audit.Options{Logger: zap.New(core)})
	require.NoError(t, rdb.Set(t.Context(), "belay:audit-tenants", "no set", 0).Err())
	require.NoError(t, l.Write(t.Context(), blocked("acme", "k", "d1")), "it is written")
	require.Len(t, read(t, l, audit.Filter{Tenant: "acme"}), 1)
	require.Equal(t, 1, lines.FilterMessage("Duplicate task detected").Len())
	require.Equal(t, 1, lines.FilterMessageSnippet("could not note a tenant").Len())
	require.NoError(t, rdb.Del(t.Context(), "belay:audit-tenants").Err())
	require.NoError(t, l.Write(t.Context(), blocked("acme", "k", "d2")))
	require.Len(t, read(t, l, audit.Filter{}), 2, "the next entry notes it")
}

func TestARestartedRedisListsItsTenantsAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := audit.New(server.Client(t), audit.Options{})
	require.NoError(t, l.Write(t.Context(), blocked("acme", "k", "d1")))
	server.Stop(t)
	server.Restart(t)
	require.NoError(t, l.Write(t.Context(), blocked("acme", "k", "d2")))
	require.Len(t, read(t, l, audit.Filter{}), 1)
}
