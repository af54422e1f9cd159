package metrics_test

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/metrics"
)

func scrape(t testing.TB, m *metrics.Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler(zap.NewNop()).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	require.Equal(t, 200, rec.Code)
	return rec.Body.String()
}

func TestCountsWhatHappens(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	m.Claiming()
	m.Claiming()
	require.Contains(t, scrape(t, m), "\nbelay_dedup_claims_running 2\n")
	m.Claimed(&dedup.Observation{Key: dedup.Key{Pipeline: "p"}, Decision: dedup.Granted, Took: time.Millisecond})
	m.Claimed(&dedup.Observation{Decision: dedup.Duplicate, Local: true, Took: 300 * time.Nanosecond})
	m.Claiming()
	m.Claimed(&dedup.Observation{Err: dedup.ErrNotOwner, Decision: dedup.Granted})
	up := true
	m.WatchTier(func() bool { return up })
	m.Audited(&audit.Entry{RootCause: audit.Redelivery}, false)
	m.Audited(&audit.Entry{}, false)
	m.Audited(&audit.Entry{RootCause: audit.Redelivery}, true)
	m.Swept(dedup.Failed)
	m.SetLeaked(3)
	m.Overdue()
	m.Released("lock")
	m.Released("no such kind")
	text := scrape(t, m)
	for _, line := range []string{
		`belay_dedup_decisions_total{decision="granted",space="pipeline",tier="redis"} 1`,
		`belay_dedup_decisions_total{decision="granted",space="step",tier="redis"} 0`,
		`belay_dedup_decisions_total{decision="duplicate",space="step",tier="local"} 1`,
		`belay_dedup_decisions_total{decision="error",space="step",tier="redis"} 1`,
		`belay_dedup_claim_seconds_count{tier="local"} 1`,
		`belay_dedup_claim_seconds_count{tier="redis"} 2`,
		`belay_dedup_claims_running 0`,
		`belay_dedup_tier_up 1`,
		`belay_audit_entries_total{root_cause="redelivery"} 1`,
		`belay_audit_entries_total{root_cause="none"} 1`,
		`belay_audit_entries_dropped_total 1`,
		`belay_dedup_swept_total{state="failed"} 1`,
		`belay_leaked_resources 3`,
		`belay_overdue_runs_total 1`,
		`belay_released_total{kind="lock"} 1`,
		`belay_released_total{kind="process"} 0`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	up = false
	require.Contains(t, scrape(t, m), "\nbelay_dedup_tier_up 0\n")
}

// Series must not grow with what people name their things.
func TestTheNumberOfSeriesStays(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	own := func() int {
		return len(regexp.MustCompile(`(?m)^belay_`).FindAllString(scrape(t, m), -1))
	}
	before := own()
	for i := range 1000 {
		name := strings.Repeat("x", i%50+1)
		for _, d := range append(dedup.Decisions(), "unheard_of") {
			m.Claiming()
			m.Claimed(&dedup.Observation{Key: dedup.Key{Tenant: name, Project: name, Pipeline: name, Name: name}, Decision: d})
		}
		m.Audited(&audit.Entry{Tenant: name, RootCause: audit.Cause(name)}, false)
	}
	require.Equal(t, before, own())
	require.Less(t, before, 1200)
}

func BenchmarkClaimed(b *testing.B) {
	m := metrics.New()
	o := &dedup.Observation{Key: dedup.Key{Pipeline: "p"}, Decision: dedup.Duplicate, Local: true, Took: time.Microsecond}
	for b.Loop() {
		m.Claiming()
		m.Claimed(o)
	}
}
