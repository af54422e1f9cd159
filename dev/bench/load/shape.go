package load

import (
	"context"
	"time"

	"belay.run/internal/pause"
)

// The shapes of load: who has tasks run, and when.

// runs has one task run, and returns when it has ended.
type runs func(ctx context.Context) error

// repeat is one caller, who has one task run after another.
func repeat(ctx context.Context, run runs, rec *recorder) {
	for ctx.Err() == nil {
		rec.run(ctx, time.Now(), run)
	}
}

// spawn has a goroutine run each task, and a semaphore keep them few enough.
func spawn(ctx context.Context, most int, run runs, rec *recorder) {
	room := make(chan struct{}, most)
	for ctx.Err() == nil {
		room <- struct{}{}
		go func() {
			rec.run(ctx, time.Now(), run)
			<-room
		}()
	}
}

// arrive has tasks come at a rate. One that comes late is late by its own clock.
func arrive(ctx context.Context, rate float64, run runs, rec *recorder) {
	began := time.Now()
	for n := 0; ctx.Err() == nil; {
		for due := int(time.Since(began).Seconds() * rate); n < due; n++ {
			at := began.Add(time.Duration(float64(n) / rate * float64(time.Second)))
			go rec.run(ctx, at, run)
		}
		if pause.For(ctx, time.Millisecond) != nil {
			return
		}
	}
}

// crowd has tasks wait behind those that are let run and do not end: each with a
// goroutine, or all in one that submits them at once.
func crowd(ctx context.Context, s Spec, run runs, rec *recorder) error {
	all := 1
	if s.Kind == Bare {
		all = s.Waiting + s.InFlight
		run = guarded(s.InFlight, run)
	}
	for range all {
		go rec.run(ctx, time.Now(), run)
	}
	for rec.inFlight() < all {
		if err := pause.For(ctx, beat); err != nil {
			return err
		}
	}
	return pause.For(ctx, s.Warm)
}

// guarded lets so many tasks run at once.
func guarded(most int, run runs) runs {
	room := make(chan struct{}, most)
	return func(ctx context.Context) error {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
			return run(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
