package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Report counts what was decided by the month, in UTC.
type Report struct {
	Months []Month `json:"months"`
}

// Month is one of them.
type Month struct {
	// Month is its name, as 2026-01.
	Month string `json:"month"`
	// Complete is false of a month that goes on, or of which the counts of some
	// days are no longer kept.
	Complete bool           `json:"complete"`
	Tenants  []TenantReport `json:"tenants"`
}

// TenantReport is what a tenant's requests came to in a month.
type TenantReport struct {
	Tenant string `json:"tenant"`
	// Ran is how many claims of runs and steps were granted, Saved how many runs
	// and steps did not run again, and SavedRate the part of all that is.
	Ran       int64   `json:"ran"`
	Saved     int64   `json:"saved"`
	SavedRate float64 `json:"saved_rate"`
	// RootCauses are those of the saved.
	RootCauses map[Cause]int64    `json:"root_causes"`
	Decisions  map[Decision]int64 `json:"decisions"`
}

// Report counts by month and tenant, the oldest month first. Since and Until are
// widened to whole months; counts are kept for 400 days.
func (l *Log) Report(ctx context.Context, f StatsFilter, now time.Time) (*Report, error) {
	if f.Until.IsZero() || f.Until.After(now) {
		f.Until = now
	}
	oldest := now.Add(-daysKept)
	if f.Since.Before(oldest) {
		f.Since = oldest
	}
	tenants := []string{f.Tenant}
	if f.Tenant == "" {
		var err error
		if tenants, err = l.Tenants(ctx); err != nil {
			return nil, err
		}
	}
	out := &Report{Months: []Month{}}
	for first := monthOf(f.Since); first.Before(f.Until); first = first.AddDate(0, 1, 0) {
		next := first.AddDate(0, 1, 0)
		m := Month{
			Month: first.Format("2006-01"), Complete: !next.After(now) && !first.Before(oldest), Tenants: []TenantReport{},
		}
		for _, tenant := range tenants {
			t, err := l.tenantReport(ctx, &f, tenant, dayOf(first), dayOf(next)-1)
			if err != nil {
				return nil, err
			}
			if t != nil {
				m.Tenants = append(m.Tenants, *t)
			}
		}
		slices.SortFunc(m.Tenants, func(a, b TenantReport) int { return cmp.Compare(a.Tenant, b.Tenant) })
		out.Months = append(out.Months, m)
	}
	return out, nil
}

func monthOf(t time.Time) time.Time {
	y, m, _ := t.UTC().Date()
	return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
}

// tenantReport is nil where nothing was claimed.
func (l *Log) tenantReport(ctx context.Context, f *StatsFilter, tenant string, first, last int64) (*TenantReport, error) {
	var sum *PipelineStats
	err := l.counts(ctx, daysPrefix(tenant), first, last, func(field string, n int64) {
		c, ok := parseCount(field)
		if !ok || f.Project != "" && f.Project != c.project || f.Pipeline != "" && f.Pipeline != c.pipeline {
			return
		}
		if sum == nil {
			sum = newStats(subject{tenant: tenant})
		}
		sum.add(c, n)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the counts of tenant %s: %w", tenant, err)
	}
	if sum == nil {
		return nil, nil //nolint:nilnil // nothing was claimed
	}
	sum.rate()
	return &TenantReport{
		Tenant: tenant, Ran: sum.Granted, Saved: sum.Blocked, SavedRate: sum.BlockedRate,
		RootCauses: sum.RootCauses, Decisions: sum.Decisions,
	}, nil
}
