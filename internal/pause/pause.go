// Package pause waits, unless there is a reason not to.
package pause

import (
	"context"
	"time"
)

// For waits for so long, or returns why ctx ended before.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
