package audit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Trim removes the entries of all tenants that are older than the retention, and
// returns how many. Without a retention it keeps those of others that would have
// gone by themselves.
func (l *Log) Trim(ctx context.Context, now time.Time) (int, error) {
	tenants, err := l.Tenants(ctx)
	if err != nil {
		return 0, err
	}
	var errs []error
	removed := 0
	for _, tenant := range tenants {
		n, err := l.trim(ctx, tenant, now)
		removed += int(n)
		if err != nil {
			errs = append(errs, fmt.Errorf("removing old entries of tenant %s from the audit: %w", tenant, err))
		}
	}
	return removed, errors.Join(errs...)
}

func (l *Log) trim(ctx context.Context, tenant string, now time.Time) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if l.opts.Retention == 0 {
		return 0, errors.Join(l.rdb.Persist(ctx, streamKey(tenant)).Err(), l.rdb.Persist(ctx, seenKey(tenant)).Err())
	}
	before := strconv.FormatInt(now.Add(-l.opts.Retention).UnixMilli(), 10)
	n, err := l.rdb.XTrimMinID(ctx, streamKey(tenant), before).Result()
	if err != nil {
		return 0, err
	}
	return n, l.rdb.ZRemRangeByScore(ctx, seenKey(tenant), "-inf", "("+before).Err()
}
