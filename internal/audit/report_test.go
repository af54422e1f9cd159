package audit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
)

func TestReportCountsByTheMonth(t *testing.T) {
	onEachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		l, m := audit.New(rdb, audit.Options{}), audit.NewMeter(rdb)
		now, err := rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		for i := range 3 {
			e := blocked("acme", "k", fmt.Sprint(i))
			e.RootCause, e.Decision = audit.Redelivery, audit.Answered
			require.NoError(t, l.Write(t.Context(), e))
		}
		meant := blocked("acme", "k", "meant")
		meant.Decision, meant.RootCause = audit.Rerun, ""
		require.NoError(t, l.Write(t.Context(), meant))
		require.NoError(t, l.Write(t.Context(), blocked("other", "k", "d")))
		m.Claimed(&dedup.Observation{Decision: dedup.Granted, Key: dedup.Key{Tenant: "acme", Project: "web", Pipeline: "deploy"}})
		require.NoError(t, m.Flush(t.Context()))

		got, err := l.Report(t.Context(), audit.StatsFilter{Since: now.Add(-time.Minute)}, now.Add(time.Minute))
		require.NoError(t, err)
		this := got.Months[len(got.Months)-1]
		if len(got.Months) > 1 { // the test ran over the end of a month
			this = got.Months[0]
		}
		require.Equal(t, now.UTC().Format("2006-01"), this.Month)
		require.False(t, this.Complete, "it goes on")
		require.Len(t, this.Tenants, 2)
		require.Equal(t, audit.TenantReport{
			Tenant: "acme", Ran: 1, Saved: 3, SavedRate: 0.75,
			RootCauses: map[audit.Cause]int64{audit.Redelivery: 3},
			Decisions:  map[audit.Decision]int64{audit.Answered: 3, audit.Rerun: 1},
		}, this.Tenants[0])
		require.Equal(t, "other", this.Tenants[1].Tenant)

		// Seen from two months on, the same month is over, and two others are listed.
		later := time.Date(now.Year(), now.Month()+2, 3, 0, 0, 0, 0, time.UTC)
		got, err = l.Report(t.Context(), audit.StatsFilter{Since: now, Tenant: "acme"}, later)
		require.NoError(t, err)
		require.Len(t, got.Months, 3)
		require.True(t, got.Months[0].Complete)
		require.EqualValues(t, 3, got.Months[0].Tenants[0].Saved)
		require.Equal(t, later.Format("2006-01"), got.Months[2].Month)
		require.Empty(t, got.Months[2].Tenants)

		// The counts of another pipeline are none.
		got, err = l.Report(t.Context(), audit.StatsFilter{Since: now, Pipeline: "unknown"}, now.Add(time.Minute))
		require.NoError(t, err)
		require.Empty(t, got.Months[0].Tenants)
	})
}

func TestReportSaysWhereDaysAreNoLongerKept(t *testing.T) {
	onEachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		got, err := audit.New(rdb, audit.Options{}).Report(t.Context(), audit.StatsFilter{Since: now.AddDate(-3, 0, 0)}, now)
		require.NoError(t, err)
		require.Len(t, got.Months, 14)
		require.Equal(t, "2025-10", got.Months[0].Month)
		require.False(t, got.Months[0].Complete, "its first days are 400 days ago and more")
		require.True(t, got.Months[1].Complete)
	})
}

func TestTrim(t *testing.T) {
	onEachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		const day = 24 * time.Hour
		starter := audit.New(rdb, audit.Options{})
		ttl := func() time.Duration { return rdb.PTTL(t.Context(), "belay:audit:{acme}").Val() }
		for i := range 3 {
			require.NoError(t, starter.Write(t.Context(), blocked("acme", "k", fmt.Sprint(i))))
		}
		require.Equal(t, time.Duration(-1), ttl(), "who only adds entries does not say how long they are kept")
		month := audit.New(rdb, audit.Options{Retention: 30 * day})
		require.NoError(t, month.Write(t.Context(), blocked("acme", "k", "4")))
		require.Greater(t, ttl(), 29*day)

		n, err := month.Trim(t.Context(), time.Now().Add(29*day))
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = month.Trim(t.Context(), time.Now().Add(31*day))
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.Empty(t, read(t, month, audit.Filter{}))

		require.NoError(t, month.Write(t.Context(), blocked("acme", "k", "5")))
		n, err = starter.Trim(t.Context(), time.Now().Add(1000*day))
		require.NoError(t, err)
		require.Zero(t, n, "zero keeps them")
		require.Equal(t, time.Duration(-1), ttl())
		require.Len(t, read(t, month, audit.Filter{}), 1)
	})
}
