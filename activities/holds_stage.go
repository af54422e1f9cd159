package activities

import (
	"context"
	"errors"
	"time"

	"belay.run/internal/resource"
	"belay.run/internal/run"
)

// KeepInput names what a stage holds on a host.
type KeepInput struct {
	Owner Owner `json:"owner"`
	// Number is that of the attempt that took it.
	Number int `json:"number"`
}

// TakeResources has this host acquire what a stage holds over all its steps, and
// keep it until ReleaseResources gives it back. Its result is like that of a step of
// the stage's own node. After an error nothing is held, save what cannot be given
// back. Acquiring again gives back first what is held.
func (s *Steps) TakeResources(ctx context.Context, in StepInput) (*StepResult, error) {
	return s.attempt(ctx, in, (*attempt).takeForStage)
}

// KeepResources ends when what a stage holds on this host is lost, or given back. Its
// heartbeats tell the stage that the worker lives which keeps that.
func (s *Steps) KeepResources(ctx context.Context, in KeepInput) error {
	unstick(ctx, s.Client, s.Namespace)
	defer beating(ctx)()
	cause := run.Cause{Trigger: run.TriggerWorkerLost, Source: in.Owner.Node, Message: holdLost}
	hold := s.Resources.holds.of(nodeKey{in.Owner.RunKey, in.Owner.Node}, in.Number)
	if hold == nil {
		return fail(cause)
	}
	select {
	case <-hold.done:
		return nil
	case <-hold.lost:
		cause.Trigger, cause.Message = hold.cause.Trigger, hold.cause.Message
		return fail(cause)
	case <-ctx.Done():
		if stop := classify(context.Cause(ctx)); stop != nil && stop.kind == stopShutdown {
			return fail(cause)
		}
		return ctx.Err()
	}
}

// holdLost is why a step does not run whose stage held something in a worker that
// is no more.
const holdLost = "what the stage held was lost with its worker"

// takeForStage is the attempt to acquire what a stage holds.
func (a *attempt) takeForStage() error {
	if cause, ended := a.steps.enter(a); ended {
		return &stopError{kind: stopCancelled, cause: cause}
	}
	a.setPhase(PhaseRunning)
	a.res.StartedAt = time.Now()
	a.steps.Resources.holds.drop(a.key, 0)
	if err := a.endEarlier(); err != nil {
		return err
	}
	a.releaseEarlier()
	a.taking = newStageHold(a.number)
	err := a.takeAll()
	if err == nil {
		err = a.stopped(nil)
	}
	if err != nil {
		a.releaseAll(0)
		return err
	}
	a.handOver()
	return nil
}

// takeAll acquires in order: locks, which may take long, before what is made for the
// stage alone.
func (a *attempt) takeAll() (err error) {
	if err := a.acquire(a.locks(), environ{}); err != nil {
		return err
	}
	a.setPhase(PhaseRunning)
	if err := a.makeDirs(); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, a.removeTemp())
		a.temp = "" // what is left of it goes with the workspace, which is the stage's own
	}()
	env, err := a.environment()
	if err != nil {
		return err
	}
	acquire := func() error {
		before := len(a.holdings)
		err := a.acquire(a.others(), env)
		if err != nil {
			a.releaseAll(before)
		}
		return err
	}
	if !a.in.Step.Holds(resource.KindCustom) {
		return acquire()
	}
	a.setPhase(PhaseWaiting)
	tenant := a.in.Vars["BELAY_TENANT"]
	if err := a.steps.slots.Acquire(a.ctx, tenant); err != nil {
		return a.stopped(err)
	}
	defer a.steps.slots.Release(tenant)
	a.setPhase(PhaseRunning)
	return a.logged(acquire)
}

// handOver leaves what the attempt holds to the steps of the stage, and its keeping
// to whoever gives it back.
func (a *attempt) handOver() {
	rs := a.steps.Resources
	a.taking.lent, a.taking.values = a.lent, a.issued
	for _, h := range a.holdings {
		if h.unkeep != nil {
			rs.keepers.add(&h.entry, h.unkeep)
		}
		a.res.Resources = append(a.res.Resources, h.entry.Document())
	}
	a.mu.Lock()
	a.holdings = nil
	a.mu.Unlock()
	rs.holds.put(a.key, a.taking)
}

// lost ends the attempt, or the steps of the stage that holds it, where another has
// what was held: it may work under it.
func (a *attempt) lost(kind string, err error) {
	a.steps.Meter.LeaseLost(kind)
	stop := &stopError{stopTakenOver, run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: err.Error()}}
	a.stop(stop)
	if a.taking == nil {
		return
	}
	a.taking.lose(stop.cause)
	s := a.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, other := range s.running {
		if key.runKey == a.key.runKey && run.Within(key.node, a.key.node) && other.in.Held == a.taking.number {
			other.stop(stop)
		}
	}
}

// underHold gives the attempt what its stage holds.
func (a *attempt) underHold() error {
	if a.in.Held == 0 {
		return nil
	}
	hold := a.steps.Resources.holds.of(nodeKey{a.key.runKey, a.in.Owner.Node}, a.in.Held)
	if hold == nil {
		return failed(run.TriggerWorkerLost, "%s", holdLost)
	}
	select {
	case <-hold.lost:
		return &stepError{hold.cause}
	default:
	}
	a.lent, a.issued = append(a.lent, hold.lent...), append(a.issued, hold.values...)
	return nil
}
