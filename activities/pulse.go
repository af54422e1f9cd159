package activities

import (
	"context"
	"sync"
	"time"

	"belay.run/internal/run"
)

// pulse keeps an activity in touch with Temporal: it sends heartbeats, and stops
// the activity when one is answered, or the activity's context ends, with a
// reason to stop. A heartbeat that fails is none, unless all do for some time:
// another attempt may begin then.
type pulse struct {
	beat           func(ctx context.Context) error
	every, silence time.Duration
	stop           func(*stopError)
}

// start begins, until the function it returns is called.
func (p *pulse) start(ctx context.Context) func() {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { p.run(ctx, done) })
	return func() {
		close(done)
		wg.Wait()
	}
}

func (p *pulse) run(ctx context.Context, done <-chan struct{}) {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	heard := time.Now()
	asked := ctx.Done()
	for {
		select {
		case <-done:
			return
		case <-asked:
			asked = nil
			if stop := classify(context.Cause(ctx)); stop != nil {
				p.stop(stop)
			}
		case <-tick.C:
			switch err := p.send(ctx); {
			case err == nil:
				heard = time.Now()
			case time.Since(heard) > p.silence:
				p.stop(&stopError{stopShutdown, run.Cause{
					Trigger: run.TriggerWorkerLost, Message: "Temporal has not answered for " + p.silence.String() + ": " + err.Error(),
				}})
			}
		}
	}
}

// send sends one heartbeat. One that is answered with a reason to stop has been
// heard.
func (p *pulse) send(ctx context.Context) error {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.silence/2)
	defer cancel()
	err := p.beat(call)
	if stop := classify(err); stop != nil {
		p.stop(stop)
		return nil
	}
	return err
}
