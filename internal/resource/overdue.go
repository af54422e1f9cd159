package resource

import (
	"context"
	"fmt"
	"time"
)

// overduePrefix begins the keys that say of a run that people were told that it is
// overdue. Each goes by itself.
const overduePrefix = "belay:overdue:"

// MarkOverdue writes down that people are told that a run is overdue, and reports
// whether nobody has before. A nil Ledger does not remember.
func (l *Ledger) MarkOverdue(ctx context.Context, runKey string) (first bool, err error) {
	if l == nil {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	first, err = l.rdb.SetNX(ctx, overduePrefix+runKey, time.Now().UTC().Format(time.RFC3339), keepFor).Result()
	if err != nil {
		return false, fmt.Errorf("writing down that run %s is overdue: %w", runKey, err)
	}
	return first, nil
}
