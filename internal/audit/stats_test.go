package audit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
)

func TestStats(t *testing.T) {
	onEachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		l, m := audit.New(rdb, audit.Options{}), audit.NewMeter(rdb)
		claim := func(o dedup.Observation) { m.Claimed(&o) }
		for range 3 {
			claim(dedup.Observation{Key: dedup.Key{Tenant: "acme", Project: "web", Pipeline: "deploy", Name: "k"}, Decision: dedup.Granted, Took: time.Millisecond})
		}
		// A step of that pipeline, and what is no new run.
		claim(dedup.Observation{
			Key: dedup.Key{Tenant: "acme", Project: "web", Name: "k"}, Owner: dedup.Owner{WorkflowID: "acme/web/deploy/k/x/y"},
			Decision: dedup.Granted, Took: time.Millisecond,
		})
		claim(dedup.Observation{Key: dedup.Key{Tenant: "acme", Project: "web", Pipeline: "deploy"}, Decision: dedup.Resumed, Took: time.Millisecond})
		claim(dedup.Observation{Key: dedup.Key{Tenant: "acme", Project: "web", Pipeline: "deploy"}, Decision: dedup.Duplicate, Local: true, Took: time.Microsecond})
		claim(dedup.Observation{Key: dedup.Key{Tenant: "acme", Project: "web", Pipeline: "deploy"}, Err: dedup.ErrNotOwner, Took: time.Hour})
		claim(dedup.Observation{Key: dedup.Key{Tenant: "quiet", Project: "p", Pipeline: "q"}, Decision: dedup.Granted, Took: time.Millisecond})
		require.NoError(t, m.Flush(t.Context()))
		require.NoError(t, m.Flush(t.Context()), "nothing is counted twice")

		e := blocked("acme", "k", "d1")
		require.NoError(t, l.Write(t.Context(), e))
		require.NoError(t, l.Write(t.Context(), e), "nor an entry")
		e.Delivery, e.RootCause, e.Decision = "d2", audit.Redelivery, audit.Rejected
		require.NoError(t, l.Write(t.Context(), e))
		e.Delivery, e.Decision = "d3", audit.Rerun
		require.NoError(t, l.Write(t.Context(), e))

		s, err := l.Stats(t.Context(), audit.StatsFilter{Since: time.Now().Add(-time.Hour)})
		require.NoError(t, err)
		require.Equal(t, []audit.PipelineStats{{
			Tenant: "acme", Project: "web", Pipeline: "deploy", Granted: 4, Blocked: 2, BlockedRate: 1.0 / 3,
			RootCauses: map[audit.Cause]int64{audit.DoubleTrigger: 1, audit.Redelivery: 1},
			Decisions:  map[audit.Decision]int64{audit.Attached: 1, audit.Rejected: 1, audit.Rerun: 1},
		}, {
			Tenant: "quiet", Project: "p", Pipeline: "q", Granted: 1,
			RootCauses: map[audit.Cause]int64{}, Decisions: map[audit.Decision]int64{},
		}}, s.Pipelines)
		require.Len(t, s.Overhead, 2)
		require.Equal(t, audit.TierLocal, s.Overhead[0].Tier)
		require.EqualValues(t, 1, s.Overhead[0].Claims)
		require.InEpsilon(t, 1e-6, s.Overhead[0].P50, 0.25)
		require.EqualValues(t, 6, s.Overhead[1].Claims)
		require.InEpsilon(t, 1e-3, s.Overhead[1].P99, 0.25)
		require.InEpsilon(t, 1e-3, s.Overhead[1].Mean, 0.01)

		s, err = l.Stats(t.Context(), audit.StatsFilter{Tenant: "acme", Pipeline: "other"})
		require.NoError(t, err)
		require.Empty(t, s.Pipelines)
	})
}

func TestStatsEndNow(t *testing.T) {
	t.Parallel()
	l := audit.New(redistest.Start(t).Client(t), audit.Options{})
	s, err := l.Stats(t.Context(), audit.StatsFilter{Until: time.Now().Add(90 * 24 * time.Hour)})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), s.Until, time.Hour)
}

func TestCountsAreBounded(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	l, m := audit.New(rdb, audit.Options{}), audit.NewMeter(rdb)
	const pipelines = 5000
	for i := range pipelines {
		m.Claimed(&dedup.Observation{Key: dedup.Key{Tenant: "acme", Project: "p", Pipeline: fmt.Sprint(i)}, Decision: dedup.Granted})
	}
	// All in one hour, whatever the clock does: what came first is not asked for.
	require.Eventually(t, func() bool { return m.Flush(t.Context()) == nil }, time.Minute, time.Millisecond)
	s, err := l.Stats(t.Context(), audit.StatsFilter{Since: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	var granted int64
	for _, p := range s.Pipelines {
		granted += p.Granted
	}
	require.EqualValues(t, pipelines, granted, "all are counted")
	require.Less(t, len(s.Pipelines), pipelines, "not all by name")
}

func TestWhatCannotBeCountedNowIsCountedLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	l, m := audit.New(rdb, audit.Options{}), audit.NewMeter(rdb)
	m.Claimed(&dedup.Observation{Key: dedup.Key{Tenant: "acme", Project: "p", Pipeline: "q"}, Decision: dedup.Granted, Took: time.Millisecond})
	server.Stop(t)
	require.Error(t, m.Flush(t.Context()))
	server.Restart(t)
	require.NoError(t, m.Flush(t.Context()))
	s, err := l.Stats(t.Context(), audit.StatsFilter{})
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Pipelines[0].Granted)
	require.EqualValues(t, 1, s.Overhead[0].Claims)
}

func BenchmarkWrite(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	l := audit.New(rdb, audit.Options{})
	i := 0
	for b.Loop() {
		i++
		if err := l.Write(b.Context(), blocked("acme", "k", fmt.Sprint(i))); err != nil {
			b.Fatal(err)
		}
	}
}
