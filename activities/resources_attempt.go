package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"belay.run/internal/measure"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/spec"
)

// holding is one resource that an attempt holds, or has begun to acquire.
type holding struct {
	entry resource.Entry
	kind  resource.Kind
	// unkeep stops what keeps it; nil where it needs no keeping.
	unkeep func()
	// held: it is acquired. Guarded by the attempt's mutex.
	held bool
}

// locks are the locks of the step, sorted by name: who acquires several in one
// order meets no deadlock. The others follow in the order of the file.
func (a *attempt) locks() []spec.Resource {
	var locks []spec.Resource
	for _, r := range a.in.Step.Resources {
		if r.Kind == resource.KindLock {
			locks = append(locks, r)
		}
	}
	slices.SortFunc(locks, func(x, y spec.Resource) int { return strings.Compare(x.Name, y.Name) })
	return locks
}

// others are the resources that an attempt acquires when it has its directories;
// a slot is not among them: the stage holds it over all attempts.
func (a *attempt) others() []spec.Resource {
	return slices.DeleteFunc(slices.Clone(a.in.Step.Resources), func(r spec.Resource) bool {
		return r.Kind == resource.KindLock || r.Kind == resource.KindSlot
	})
}

// releaseEarlier gives back what earlier attempts of the node left on this host,
// as they do where their worker was killed.
func (a *attempt) releaseEarlier() {
	if !a.in.Step.Holds() && a.in.Step.Container == nil {
		return
	}
	left, err := a.steps.Resources.releaseHere(a.ctx, a.key.runKey, func(e *resource.Entry) bool { return e.Node == a.key.node })
	if err != nil {
		a.note("not all records of what earlier attempts held can be read: %v", err)
	}
	for _, e := range left {
		if e.Open() {
			a.earlier = append(a.earlier, e)
		}
	}
}

// acquire acquires resources in order, each written down before.
func (a *attempt) acquire(list []spec.Resource, env environ) error {
	for i := range list {
		if err := a.stopped(nil); err != nil {
			return err
		}
		if err := a.acquireOne(&list[i], env); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) acquireOne(r *spec.Resource, env environ) error {
	rs := a.steps.Resources
	kind, err := a.kind(r.Kind, env)
	if err != nil {
		return failed(run.TriggerInvalid, "%v", err)
	}
	h := &holding{kind: kind, entry: a.entry(r)}
	if checker, ok := kind.(resource.Checker); ok {
		if err := checker.Check(&h.entry); err != nil {
			return unavailable(&h.entry, err)
		}
	}
	if err := rs.book.Note(a.ctx, &h.entry, run.ResourceAcquiring); err != nil {
		return a.stopped(&retryableError{err})
	}
	a.hold(h)
	ctx, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	if r.Timeout > 0 {
		over := fmt.Errorf("acquire took more than its timeout of %s", r.Timeout)
		defer time.AfterFunc(r.Timeout, func() { cancel(over) }).Stop()
	}
	var grant resource.Grant
	since := time.Now()
	err = guarded(func() (err error) {
		grant, err = kind.Acquire(ctx, &h.entry, resource.Ask{
			Acquire: r.Acquire,
			Waiting: func(position int, holder string) { a.waitForLock(r.Name, position, holder) },
		})
		return err
	})
	if err != nil {
		return a.acquireError(h, err)
	}
	if r.Kind == resource.KindLock {
		rs.Meter.Waited(measure.Lock, time.Since(since))
	}
	if err := a.granted(h, grant, env); err != nil {
		return err
	}
	if keeper, ok := kind.(resource.Keeper); ok {
		h.unkeep = keepHeld(a.ctx, keeper, h.entry, func(err error) { a.lost(r.Kind, err) })
	}
	return nil
}

// granted takes what comes with a resource into the step's environment.
func (a *attempt) granted(h *holding, grant resource.Grant, env environ) error {
	if a.mask.Contains(h.entry.ID) {
		return failed(run.TriggerInvalid, "resources: the id that acquire gave %s holds a secret, which would be recorded for all to read", h.entry.Name)
	}
	a.steps.Resources.note(a.ctx, &h.entry, run.ResourceHeld)
	a.mu.Lock()
	h.held = true
	a.mu.Unlock()
	env.add(grant.Env)
	a.lent = append(a.lent, grant.Env)
	for _, v := range grant.Secrets {
		env[v.Name()] = v.Reveal()
	}
	if len(grant.Secrets) == 0 {
		return nil
	}
	a.values, a.issued = append(a.values, grant.Secrets...), append(a.issued, grant.Secrets...)
	mask, err := secret.NewMasker(a.values...)
	if err != nil {
		return failed(run.TriggerInvalid, "%v", err)
	}
	a.mask = mask
	return nil
}

// acquireError is what a failed acquisition means for the attempt.
func (a *attempt) acquireError(h *holding, err error) error {
	if stop := a.stopped(nil); stop != nil {
		return stop
	}
	var script *scriptError
	switch {
	case errors.As(err, &script):
		// It says itself that it has acquired nothing.
		a.steps.Resources.note(a.ctx, &h.entry, run.ResourceReleased)
		a.drop(h)
		return &retryableError{failed(run.TriggerExitCode, "acquiring %s %s: %v", h.entry.Kind, h.entry.Name, err)}
	default:
		return unavailable(&h.entry, err)
	}
}

func unavailable(e *resource.Entry, err error) error {
	return &retryableError{failed(run.TriggerDependencyUnavailable, "acquiring %s %s: %v", e.Kind, e.Name, err)}
}

// kind is the kind by its name, for this attempt.
func (a *attempt) kind(name string, env environ) (resource.Kind, error) {
	if name == resource.KindCustom {
		return &resource.Custom{Scripts: a.scripts(env)}, nil
	}
	return a.steps.Resources.kind(name)
}

// entry is a resource as it is written down before it is acquired.
func (a *attempt) entry(r *spec.Resource) resource.Entry {
	e := resource.Entry{
		Owner: a.in.Holder, Kind: r.Kind, Name: r.Name, Scope: resource.ScopeStep, Provider: r.Provider,
		Host: a.steps.Host.ID(), Label: a.in.Label,
	}
	secrets := a.in.Step.Secrets
	if a.taking != nil {
		e.Scope, secrets = resource.ScopeStage, r.Secrets
	}
	e.Node, e.Attempt = a.key.node, a.number
	if r.Kind == resource.KindPort || r.Kind == resource.KindTempDir {
		e.Queue = a.steps.Host.Queue()
	}
	if r.Kind == resource.KindCustom {
		e.Release = &resource.Command{Script: r.Release, Shell: a.in.Step.Shell, Env: a.frozen(), Secrets: secrets}
	}
	return e
}

// frozen are the variables that a release script is given, now or later: those of
// the step, save such as name what is gone by then, and secrets.
func (a *attempt) frozen() map[string]string {
	out := environ{}
	a.own(out)
	return out
}

func (a *attempt) hold(h *holding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holdings = append(a.holdings, h)
}

func (a *attempt) drop(h *holding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holdings = slices.DeleteFunc(a.holdings, func(other *holding) bool { return other == h })
	a.ended = append(a.ended, h.entry)
}

// releaseAll gives back what the attempt holds beyond the first n, the last first,
// in time of its own. What is exclusive stays where processes of the step may
// live on.
func (a *attempt) releaseAll(n int) {
	if len(a.holdings) <= n {
		return
	}
	a.setPhase(PhaseReleasing)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), max(a.in.Release, ReleaseTry))
	defer cancel()
	rs := a.steps.Resources
	for len(a.holdings) > n {
		h := a.holdings[len(a.holdings)-1]
		kept := a.notGone != "" && resource.Exclusive(h.entry.Kind)
		switch {
		case h.unkeep == nil:
		case kept:
			rs.keepers.add(&h.entry, h.unkeep)
		default:
			h.unkeep()
		}
		if kept {
			h.entry.Error = "it is kept as long as processes may use it: " + a.notGone
		} else if err := rs.releaseOne(ctx, h.kind, &h.entry, share(ctx, len(a.holdings))); err != nil {
			a.note("%s %s is not given back yet: %v", h.entry.Kind, h.entry.Name, err)
		}
		a.drop(h)
	}
}

// reportResources says in the result what the attempt held, and what of that, or
// of what earlier attempts held, is not given back.
func (a *attempt) reportResources() {
	if a.ran {
		a.res.Resources = append(a.res.Resources, ownResource(resource.KindProcess, a.in.Step.Name, a.notGone))
	}
	if a.temp != "" {
		a.res.Resources = append(a.res.Resources, ownResource(resource.KindTempDir, "tmp", a.tempLeft))
	}
	for _, e := range append(a.earlier, a.ended...) {
		e.Error = a.mask.String(e.Error)
		a.res.Resources = append(a.res.Resources, e.Document())
		if e.Open() {
			a.res.Unreleased = append(a.res.Unreleased, e)
		}
	}
}

// ownResource is one that every attempt has; what is left of it goes with the
// stage's workspace.
func ownResource(kind, name, left string) run.Resource {
	out := run.Resource{Kind: kind, Name: name, State: run.ResourceReleased, Attempts: 1}
	if left != "" {
		out.State, out.Error = run.ResourceReleasing, left
	}
	return out
}

// waitForLock shows that the attempt waits for a lock.
func (a *attempt) waitForLock(name string, position int, holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since := time.Now()
	if a.phase.Phase == PhaseLocking && a.phase.Name == name {
		since = a.phase.Since
	}
	a.phase = Progress{Phase: PhaseLocking, Since: since, Name: name, Position: position, Holder: holder}
}

// heldNow is what the attempt holds, for its heartbeat. The caller has its mutex.
func (a *attempt) heldNow() []run.Resource {
	var out []run.Resource
	for _, h := range a.holdings {
		state := run.ResourceAcquiring
		switch {
		case a.phase.Phase == PhaseReleasing:
			state = run.ResourceReleasing
		case h.held:
			state = run.ResourceHeld
		}
		out = append(out, run.Resource{Kind: h.entry.Kind, Name: h.entry.Name, State: state})
	}
	return out
}
