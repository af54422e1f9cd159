package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/pause"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

const (
	// stepLease is how long the claim of a step is held without a renewal, and
	// renewEvery how often it is renewed. A lease that ran out takes nothing
	// away by itself: then one asks whether the owner lives.
	stepLease  = 30 * time.Second
	renewEvery = stepLease / 3
	// claimWait is how long a step waits for the one that holds its key.
	claimWait = time.Hour
	// claimLook is how often one that waits looks whether the key is free, and
	// claimAgain how often it claims in any case, which asks for the owner.
	claimLook  = 250 * time.Millisecond
	claimAgain = 5 * time.Second
)

// stepGrant is what a step's claim came to: a claim that is held, or a result
// that stands for the step's own, or neither where it runs unchecked.
type stepGrant struct {
	held   *dedup.Record
	result *StepResult
	note   string
}

// claimStep claims the key of a step. It waits for one that runs elsewhere, which
// it tells by waiting, and claims when that one has failed.
func (c *Claims) claimStep(ctx context.Context, in *Claiming, waiting func(holder string)) (stepGrant, error) {
	var grant stepGrant
	deadline := time.Now().Add(claimWait)
	for {
		var holds *dedup.Record // by whom the key is held
		err := c.patiently(ctx, in, func() (err error) {
			grant, holds, err = c.tryStep(ctx, in)
			return err
		})
		switch {
		case err == nil && holds == nil:
			return grant, nil
		case errors.Is(err, dedup.ErrUnavailable) && in.Risk == spec.RiskLow:
			c.audit(ctx, in, nil, audit.Unchecked, false, "")
			traceDedup(ctx, string(audit.Unchecked))
			return stepGrant{note: unchecked(in.Key, err)}, nil
		case errors.Is(err, dedup.ErrUnavailable):
			return stepGrant{}, &stepError{in.unavailable(err)}
		case err != nil:
			return stepGrant{}, err
		case time.Now().After(deadline):
			return stepGrant{}, failed(run.TriggerDependencyUnavailable, "waited %s for key %q, which another step holds", claimWait, in.Key.Name)
		}
		waiting(refOf(holds.Owner))
		if err := c.watch(ctx, holds); err != nil {
			return stepGrant{}, err
		}
	}
}

// watch returns when it is worth claiming again: the claim of another is not what
// it was, or some time is over.
func (c *Claims) watch(ctx context.Context, holds *dedup.Record) error {
	for until := time.Now().Add(claimAgain); time.Now().Before(until); {
		if err := pause.For(ctx, claimLook); err != nil {
			return err
		}
		now, err := c.Claims.Lookup(ctx, holds.Key)
		if err != nil || now == nil || now.State != dedup.Running || !now.Owner.Same(holds.Owner) {
			return ctx.Err() // what is wrong with Redis shows in the claim
		}
	}
	return nil
}

// tryStep is one try. Holds is the claim of another under which the step runs
// now: one is to wait for it.
func (c *Claims) tryStep(ctx context.Context, in *Claiming) (grant stepGrant, holds *dedup.Record, err error) {
	if err := c.awaitOwners(ctx, in); err != nil {
		return stepGrant{}, nil, err
	}
	over, err := c.overridden(ctx, in)
	if err != nil {
		return stepGrant{}, nil, err
	}
	v, dead, err := c.decide(ctx, in, dedup.Claim{
		Key: in.Key, Owner: in.Owner, Request: in.Request, Fingerprint: in.Fingerprint, Lease: stepLease,
		Rerun: in.Rerun, Replicate: in.Risk != spec.RiskLow,
	})
	if err != nil {
		return stepGrant{}, nil, fmt.Errorf("claiming key %q: %w", in.Key.Name, err)
	}
	traceDedup(ctx, string(v.Decision))
	if v.Decision.Runs() {
		if dead != nil {
			c.audit(ctx, in, dead, audit.Takeover, false, tier(v))
		} else if over != nil && v.Decision == dedup.Granted {
			c.audit(ctx, in, over, audit.Rerun, v.Mismatch, tier(v))
		}
		return stepGrant{held: &v.Record}, nil, nil
	}
	if v.Decision == dedup.Done {
		res, err := c.recorded(ctx, &v.Record)
		return stepGrant{result: res, note: "its result was recorded before; it did not run again"}, nil, err
	}
	if v.Record.Owner.RunKey == in.Owner.RunKey {
		return stepGrant{}, nil, failed(run.TriggerInvalid,
			"key %q is also that of %s in this run: the keys of two steps must differ", in.Key.Name, v.Record.Owner.Node)
	}
	grant, wait, err := c.duplicateStep(ctx, in, &v)
	if wait {
		holds = &v.Record
	}
	return grant, holds, err
}

// duplicateStep decides what becomes of a step whose key another run has.
func (c *Claims) duplicateStep(ctx context.Context, in *Claiming, v *dedup.Verdict) (grant stepGrant, wait bool, err error) {
	of := &v.Record
	refuse := func(d audit.Decision, format string, args ...any) (stepGrant, bool, error) {
		c.audit(ctx, in, of, d, v.Mismatch, tier(*v))
		return stepGrant{}, false, failed(run.TriggerDependencyUnavailable, format, args...)
	}
	switch {
	case v.Mismatch && in.OnMismatch == spec.OnDuplicateReject:
		return refuse(audit.Mismatch, "key %q is that of %s, with other inputs", in.Key.Name, refOf(of.Owner))
	case v.Decision == dedup.InFlight && in.OnDuplicate == spec.OnDuplicateReject:
		return refuse(audit.Rejected, "a duplicate of %s, which runs under key %q", refOf(of.Owner), in.Key.Name)
	case v.Decision == dedup.InFlight:
		return stepGrant{}, true, nil
	case of.State == dedup.Running: // the request's own run, whose end is not known yet
		return stepGrant{}, true, nil
	case of.State != dedup.Completed:
		// Delivered once more after it failed: its answer is that failure.
		cause := run.Cause{Trigger: run.TriggerInvalid, Message: "it failed"}
		if of.Result.Cause != nil {
			cause = *of.Result.Cause
		}
		return refuse(audit.Answered, "this request was answered before, by %s: %s", refOf(of.Owner), &cause)
	}
	c.audit(ctx, in, of, audit.Answered, v.Mismatch, tier(*v))
	res, err := c.recorded(ctx, of)
	if err != nil {
		return stepGrant{}, false, err
	}
	res.DuplicateOf = &of.Owner
	grant = stepGrant{result: res}
	if v.Mismatch {
		grant.note = fmt.Sprintf("a duplicate of %s by its key, but with other inputs", refOf(of.Owner))
	}
	return grant, false, nil
}

// recorded is the result of a step as its record has it.
func (c *Claims) recorded(ctx context.Context, r *dedup.Record) (*StepResult, error) {
	outputs, err := c.outputs(ctx, &r.Result)
	if err != nil {
		return nil, failed(run.TriggerDependencyUnavailable, "the result of %s cannot be read: %v", refOf(r.Owner), err)
	}
	return &StepResult{ExitCode: r.Result.ExitCode, Outputs: outputs}, nil
}

// declared leaves of outputs what a step declares, and says what is missing.
func declared(outputs map[string]string, names []string) (map[string]string, error) {
	for _, name := range names {
		if _, ok := outputs[name]; !ok {
			return nil, failed(run.TriggerInvalid, "outputs: the step that this one is a duplicate of has recorded no output %q", name)
		}
	}
	maps.DeleteFunc(outputs, func(name, _ string) bool { return !slices.Contains(names, name) })
	return outputs, nil
}

// refOf is a run as every command takes it.
func refOf(o dedup.Owner) string { return o.WorkflowID + "@" + o.RunID }

// keep renews a step's claim until ctx ends. Lost is called, once, where the
// claim is another's.
func (c *Claims) keep(ctx context.Context, held dedup.Record, lost func(run.Cause)) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// While Redis is away the claim stays: others see the owner alive.
		if err := c.Claims.Renew(ctx, held, stepLease); errors.Is(err, dedup.ErrNotOwner) {
			c.Meter.LeaseLost(leaseClaim)
			lost(run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: c.lostTo(ctx, held.Owner, held.Key)})
			return
		}
	}
}
