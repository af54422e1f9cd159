package activities

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"belay.run/internal/container"
	"belay.run/internal/pause"
	"belay.run/internal/run"
	"belay.run/internal/secret"
)

const (
	// serviceLook is how often a step looks whether its services live.
	serviceLook = time.Second
	// A step that failed may have done so because a service did: the engine says
	// so some moments later.
	lastServiceLooks = 4
	lastServiceLook  = 100 * time.Millisecond
	// lastServicesWithin bounds all of that where the engine does not answer.
	lastServicesWithin = 2 * time.Second
)

// watchServices notes the services of the stage that end while the step runs, until
// the function that it returns is called, which looks once more.
func (a *attempt) watchServices() (last func(failed bool)) {
	if len(a.in.Services) == 0 || a.steps.Containers == nil {
		return func(bool) {}
	}
	w := &serviceWatch{attempt: a, left: slices.Clone(a.in.Services)}
	ctx, cancel := context.WithCancelCause(a.ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			w.look(ctx)
			if pause.For(ctx, serviceLook) != nil {
				return
			}
		}
	})
	return func(failed bool) {
		cancel(nil)
		watching.Wait()
		w.lastLook(failed && a.ctx.Err() == nil)
	}
}

// serviceWatch are the services of which a step has not seen the end.
type serviceWatch struct {
	attempt *attempt
	left    []ServiceAddress
	noted   bool
}

// lastLook looks once more, also where the step was stopped, and some times where
// it may have failed because of what is about to be seen.
func (w *serviceWatch) lastLook(failed bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.attempt.ctx), lastServicesWithin)
	defer cancel()
	looks := 1
	if failed {
		looks = lastServiceLooks
	}
	for i := range looks {
		if i > 0 && pause.For(ctx, lastServiceLook) != nil {
			return
		}
		if w.look(ctx); w.noted {
			return
		}
	}
}

// look looks at each service once. An engine that does not answer tells nothing: it
// may be about to start again.
func (w *serviceWatch) look(ctx context.Context) {
	a := w.attempt
	w.left = slices.DeleteFunc(w.left, func(s ServiceAddress) bool {
		end, ended, err := a.steps.Containers.ServiceEnd(ctx, a.key.runKey, a.in.Owner.Node, s.Name)
		if err != nil || !ended || ctx.Err() != nil { // it may have been cut short
			return false
		}
		w.noted = true
		a.serviceEnded(ctx, s, end)
		return true
	})
}

// serviceEnded writes the end of a service into the step's log and record. A step of
// the body needs the services that have a check, and ends with them.
func (a *attempt) serviceEnded(ctx context.Context, s ServiceAddress, end container.ServiceEnd) {
	text := end.String()
	if said := a.serviceSaid(ctx, s, end); said != "" {
		text += "; the last it wrote: " + said
	}
	a.log.System(text)
	a.mu.Lock()
	a.services = append(a.services, text)
	a.mu.Unlock()
	if s.Checked && a.in.Body && !end.Well() {
		a.stop(&stopError{stopService, run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: end.String()}})
	}
}

// serviceSaid is what a service wrote last, without the secrets that it was given.
func (a *attempt) serviceSaid(ctx context.Context, s ServiceAddress, end container.ServiceEnd) string {
	if end.Output == "" {
		return ""
	}
	values, err := loadSecrets(ctx, a.steps.Secrets, s.Secrets)
	if err != nil {
		return fmt.Sprintf("not shown, as its secrets could not be read: %v", err)
	}
	mask, err := secret.NewMasker(values...)
	if err != nil {
		return fmt.Sprintf("not shown: %v", err)
	}
	return a.mask.String(mask.String(end.Output))
}
