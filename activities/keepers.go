package activities

import (
	"context"
	"sync"

	"belay.run/internal/resource"
)

// keepers keep resources that are lost where nobody says now and then that they are
// still held, beyond the attempt that acquired them: until they are given back.
type keepers struct {
	mu    sync.Mutex
	stops map[string]func() // by holder
}

// add takes over the keeping of a resource, which stop ends.
func (k *keepers) add(e *resource.Entry, stop func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stops == nil {
		k.stops = map[string]func(){}
	}
	k.stops[e.Holder()] = stop
}

// stop ends the keeping of a resource, if it is kept.
func (k *keepers) stop(e *resource.Entry) {
	k.mu.Lock()
	stop := k.stops[e.Holder()]
	delete(k.stops, e.Holder())
	k.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// stopAll ends the keeping of all.
func (k *keepers) stopAll() {
	k.mu.Lock()
	stops := k.stops
	k.stops = nil
	k.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// StopKeeping ends the keeping of what is held on a host whose worker stops. What
// that is stays written down.
func StopKeeping(r *Resources) { r.keepers.stopAll() }

// keepHeld keeps a resource until the function that it returns is called. Lost is
// told where another holds it.
func keepHeld(ctx context.Context, keeper resource.Keeper, e resource.Entry, lost func(error)) func() {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var keeping sync.WaitGroup
	keeping.Go(func() { keeper.Keep(ctx, e, lost) })
	return func() {
		cancel(nil)
		keeping.Wait()
	}
}
