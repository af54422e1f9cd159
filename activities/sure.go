package activities

import (
	"context"
	"time"

	"belay.run/internal/pause"
)

const (
	// trustFor is how long after it was last in touch with Temporal an attempt
	// may start a process: far less than Temporal waits for a heartbeat before it
	// makes another attempt.
	trustFor = 10 * time.Second
	// sureEvery is how often Temporal is asked while it does not answer.
	sureEvery = time.Second
)

// handedOver is when Temporal gave an attempt to this worker, by Temporal's clock
// where that is long ago, else now: clocks differ a little. A worker that was
// stopped finds work in its hands that was given up long before.
func handedOver(started time.Time) time.Time {
	now := time.Now()
	if !started.IsZero() && now.Sub(started) > trustFor {
		return started
	}
	return now
}

// makeSure asks Temporal, where it has not been in touch of late, whether the
// attempt is still meant, so that its process is not started beside that of the
// next one.
func (a *attempt) makeSure() error {
	for {
		a.mu.Lock()
		heard := a.heard
		a.mu.Unlock()
		// By the wall clock too: the other does not count while a machine sleeps.
		if time.Since(heard) < trustFor && time.Since(heard.Round(0)) < trustFor {
			return nil
		}
		taken := a.heartbeat(a.ctx)
		if err := context.Cause(a.ctx); err != nil {
			return a.stopped(err)
		}
		if taken {
			return nil
		}
		if err := pause.For(a.ctx, sureEvery); err != nil {
			return a.stopped(err)
		}
	}
}
