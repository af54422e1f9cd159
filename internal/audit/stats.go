package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// countsAtOnce is how many hours, or days, of counts are read in one round trip.
const countsAtOnce = 64

// StatsFilter says what to count. Empty fields match all.
type StatsFilter struct {
	// Since and Until are widened to whole hours; counts are kept for 32 days.
	// Until defaults to now, and is no later.
	Since, Until time.Time
	Tenant       string
	Project      string
	Pipeline     string
}

// Stats are counts of what was decided in a time.
type Stats struct {
	Since     time.Time       `json:"since"`
	Until     time.Time       `json:"until"`
	Pipelines []PipelineStats `json:"pipelines"`
	Overhead  []Overhead      `json:"overhead"`
}

// PipelineStats are the counts of one pipeline and its steps.
type PipelineStats struct {
	Tenant   string `json:"tenant"`
	Project  string `json:"project"`
	Pipeline string `json:"pipeline"`
	// Granted is how many claims could run, Blocked how many requests could
	// not, and BlockedRate the part of all that were blocked.
	Granted     int64   `json:"granted"`
	Blocked     int64   `json:"blocked"`
	BlockedRate float64 `json:"blocked_rate"`
	// RootCauses are those of the blocked.
	RootCauses map[Cause]int64    `json:"root_causes"`
	Decisions  map[Decision]int64 `json:"decisions"`
}

// Overhead is how long claims took that one tier answered. The quantiles are
// right within a fifth.
type Overhead struct {
	Tier   string  `json:"tier"`
	Claims int64   `json:"claims"`
	Mean   float64 `json:"mean_seconds"`
	P50    float64 `json:"p50_seconds"`
	P95    float64 `json:"p95_seconds"`
	P99    float64 `json:"p99_seconds"`
}

// Stats counts per tenant, project and pipeline, sorted by these.
func (l *Log) Stats(ctx context.Context, f StatsFilter) (*Stats, error) {
	now := time.Now()
	if f.Until.IsZero() || f.Until.After(now) {
		f.Until = now // each hour is a question to Redis, also one to come
	}
	if oldest := now.Add(-countsKept); f.Since.Before(oldest) {
		f.Since = oldest
	}
	first, last := hourOf(f.Since), hourOf(f.Until)
	out := &Stats{
		Since: time.Unix(first*3600, 0).UTC(), Until: f.Until.UTC(),
		Pipelines: []PipelineStats{}, Overhead: []Overhead{},
	}
	tenants := []string{f.Tenant}
	if f.Tenant == "" {
		var err error
		if tenants, err = l.Tenants(ctx); err != nil {
			return nil, err
		}
	}
	for _, tenant := range tenants {
		rows, err := l.tenantStats(ctx, &f, tenant, first, last)
		if err != nil {
			return nil, err
		}
		out.Pipelines = append(out.Pipelines, rows...)
	}
	var err error
	out.Overhead, err = l.overhead(ctx, first, last)
	return out, err
}

func (l *Log) tenantStats(ctx context.Context, f *StatsFilter, tenant string, first, last int64) ([]PipelineStats, error) {
	rows := make(map[subject]*PipelineStats)
	err := l.counts(ctx, countsPrefix(tenant), first, last, func(field string, n int64) {
		c, ok := parseCount(field)
		if !ok || f.Project != "" && f.Project != c.project || f.Pipeline != "" && f.Pipeline != c.pipeline {
			return
		}
		s := subject{tenant, c.project, c.pipeline}
		if rows[s] == nil {
			rows[s] = newStats(s)
		}
		rows[s].add(c, n)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the counts of tenant %s: %w", tenant, err)
	}
	out := make([]PipelineStats, 0, len(rows))
	for _, row := range rows {
		row.rate()
		out = append(out, *row)
	}
	slices.SortFunc(out, func(a, b PipelineStats) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Pipeline, b.Pipeline))
	})
	return out, nil
}

func newStats(s subject) *PipelineStats {
	return &PipelineStats{
		Tenant: s.tenant, Project: s.project, Pipeline: s.pipeline,
		RootCauses: make(map[Cause]int64), Decisions: make(map[Decision]int64),
	}
}

func (s *PipelineStats) rate() {
	if all := s.Granted + s.Blocked; all > 0 {
		s.BlockedRate = float64(s.Blocked) / float64(all)
	}
}

func (s *PipelineStats) add(c count, n int64) {
	if c.what == granted {
		s.Granted += n
		return
	}
	d := Decision(c.what)
	s.Decisions[d] += n
	if d.Blocked() {
		s.Blocked += n
		s.RootCauses[Cause(c.cause)] += n
	}
}

func (l *Log) overhead(ctx context.Context, first, last int64) ([]Overhead, error) {
	spreads := make(map[string]*spread)
	err := l.counts(ctx, overheadPrefix, first, last, func(field string, n int64) {
		tier, name, _ := strings.Cut(field, separator)
		if spreads[tier] == nil {
			spreads[tier] = new(spread)
		}
		spreads[tier].read(name, n)
	})
	if err != nil {
		return nil, fmt.Errorf("reading how long claims took: %w", err)
	}
	out := []Overhead{}
	for _, tier := range slices.Sorted(maps.Keys(spreads)) {
		s := spreads[tier]
		n := s.count()
		out = append(out, Overhead{
			Tier: tier, Claims: n, Mean: time.Duration(s.sum.Load() / max(n, 1)).Seconds(),
			P50: s.quantile(0.50).Seconds(), P95: s.quantile(0.95).Seconds(), P99: s.quantile(0.99).Seconds(),
		})
	}
	return out, nil
}

// counts reads the hashes of the hours, or days, from first to last.
func (l *Log) counts(ctx context.Context, prefix string, first, last int64, each func(field string, n int64)) error {
	for ; first <= last; first += countsAtOnce {
		if err := l.countsFrom(ctx, prefix, first, min(first+countsAtOnce-1, last), each); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) countsFrom(ctx context.Context, prefix string, first, last int64, each func(field string, n int64)) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	got, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for n := first; n <= last; n++ {
			p.HGetAll(ctx, countsKey(prefix, n))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, cmd := range got {
		hash, ok := cmd.(*redis.MapStringStringCmd)
		if !ok {
			continue
		}
		for field, text := range hash.Val() {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return fmt.Errorf("count %q: %w", field, err)
			}
			each(field, n)
		}
	}
	return nil
}
