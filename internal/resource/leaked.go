package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"belay.run/internal/run"
)

// indexLeaked keeps a holder in the set of what is leaked as long as it is.
func (l *Ledger) indexLeaked(ctx context.Context, holder string, was, is run.ResourceState) error {
	switch {
	case is == run.ResourceLeaked:
		return l.rdb.SAdd(ctx, leakedKey, holder).Err()
	case was == run.ResourceLeaked:
		return l.rdb.SRem(ctx, leakedKey, holder).Err()
	}
	return nil
}

// Leaked is how much is leaked, of all runs.
func (l *Ledger) Leaked(ctx context.Context) (int, error) {
	if l == nil {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	n, err := l.rdb.SCard(ctx, leakedKey).Result()
	if err != nil {
		return 0, fmt.Errorf("counting what is leaked: %w", err)
	}
	return int(n), nil
}

// CheckLeaked brings the count of what is leaked up to date with what somebody has
// read who went through all that is not released: it may have come apart where one
// was stopped between the two.
func (l *Ledger) CheckLeaked(ctx context.Context, seen map[string]bool) error {
	if l == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	counted, err := l.rdb.SMembers(ctx, leakedKey).Result()
	if err != nil {
		return fmt.Errorf("reading what is counted as leaked: %w", err)
	}
	var errs []error
	for _, holder := range counted {
		if seen[holder] {
			delete(seen, holder)
			continue
		}
		// It may have leaked since.
		leaked, err := l.isLeaked(ctx, holder)
		if err == nil && !leaked {
			err = l.rdb.SRem(ctx, leakedKey, holder).Err()
		}
		errs = append(errs, err)
	}
	for holder := range seen {
		leaked, err := l.isLeaked(ctx, holder) // it may be released since
		if err == nil && leaked {
			err = l.rdb.SAdd(ctx, leakedKey, holder).Err()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (l *Ledger) isLeaked(ctx context.Context, holder string) (bool, error) {
	runKey, key, _ := strings.Cut(holder, "|")
	text, err := l.rdb.HGet(ctx, ledgerKey(runKey), key).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the ledger of run %s: %w", runKey, err)
	}
	var e Entry
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return false, fmt.Errorf("reading the ledger of run %s: %w", runKey, err)
	}
	return e.State == run.ResourceLeaked, nil
}
