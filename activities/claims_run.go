package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.uber.org/zap"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/pause"
	"belay.run/internal/spec"
)

// ClaimRun claims the key of a pipeline. It waits for nothing but Redis, and for
// that as long as the risk asks for; what is to be done about a run that stands
// in the way, the answer says.
func (c *Claims) ClaimRun(ctx context.Context, in ClaimRunInput) (*ClaimResult, error) {
	unstick(ctx, c.Client, c.Namespace)
	defer beating(ctx)()
	c.identify(ctx, &in)
	var res *ClaimResult
	err := c.patiently(ctx, &in.Claiming, func() (err error) {
		res, err = c.claimRun(ctx, &in)
		return err
	})
	switch {
	case err == nil:
		return res, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !errors.Is(err, dedup.ErrUnavailable):
		return nil, fmt.Errorf("claiming key %q: %w", in.Key.Name, err)
	case in.Risk != spec.RiskLow:
		return nil, fail(in.unavailable(err))
	}
	c.audit(ctx, &in.Claiming, nil, audit.Unchecked, false, "")
	traceDedup(ctx, string(audit.Unchecked))
	return &ClaimResult{Unchecked: unchecked(in.Key, err)}, nil
}

// unchecked is the note of what goes on at low risk.
func unchecked(key dedup.Key, err error) string {
	return fmt.Sprintf("it was not checked whether this is a duplicate of another with key %q: %v", key.Name, err)
}

// claimRun is one try.
func (c *Claims) claimRun(ctx context.Context, in *ClaimRunInput) (*ClaimResult, error) {
	req, err := c.request(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := c.restore(ctx, in); err != nil {
		return nil, err
	}
	over, err := c.overridden(ctx, &in.Claiming)
	if err != nil {
		return nil, err
	}
	v, dead, err := c.decide(ctx, &in.Claiming, dedup.Claim{
		Key: in.Key, Owner: in.Owner, Request: req, Fingerprint: in.Fingerprint, Rerun: in.Rerun,
		Replicate: in.Risk != spec.RiskLow,
	})
	if err != nil {
		return nil, err
	}
	res := &ClaimResult{Decision: v.Decision, Answer: in.answer(&v), Record: v.Record, Mismatch: v.Mismatch}
	traceDedup(ctx, cmp.Or(string(res.Answer), string(v.Decision)))
	switch {
	case v.Decision == dedup.Done:
	case res.Answer != "":
		c.audit(ctx, &in.Claiming, &v.Record, res.Answer, v.Mismatch, tier(v))
	case v.Decision == dedup.Granted && dead != nil:
		c.audit(ctx, &in.Claiming, dead, audit.Takeover, false, tier(v))
	case v.Decision == dedup.Granted && over != nil:
		c.audit(ctx, &in.Claiming, over, audit.Rerun, v.Mismatch, tier(v))
	}
	return res, nil
}

// overridden is the completed claim over which a rerun is asked for, nil where
// there is none.
func (c *Claims) overridden(ctx context.Context, in *Claiming) (*dedup.Record, error) {
	if !in.Rerun {
		return nil, nil //nolint:nilnil // nothing to go over
	}
	over, err := c.Claims.Lookup(ctx, in.Key)
	if err != nil || over == nil || over.State != dedup.Completed || over.Owner.Same(in.Owner) {
		return nil, err
	}
	return over, nil
}

// answer is what is to be done about a duplicate; empty where there is none.
func (in *Claiming) answer(v *dedup.Verdict) audit.Decision {
	sameRequest := in.Request.ID != "" && v.Record.Request.ID == in.Request.ID
	switch {
	case v.Decision.Runs():
		return ""
	case v.Decision == dedup.Done, v.Decision == dedup.Redelivered:
		return audit.Answered // a request is answered with the run that it began
	case v.Mismatch && in.OnMismatch == spec.OnDuplicateReject:
		return audit.Mismatch
	case sameRequest && v.Decision == dedup.InFlight:
		return audit.Attached
	case sameRequest:
		return audit.Answered
	case in.OnDuplicate == spec.OnDuplicateReject:
		return audit.Rejected
	case v.Decision != dedup.InFlight:
		return audit.Answered
	case in.OnDuplicate == spec.OnDuplicateReplace:
		return audit.Replaced
	}
	return audit.Attached
}

// request is who asks and since when, by Redis's clock. A start that did not say
// when it was made was made when Temporal took it: how long ago that is, the
// server's clock tells. One that replaces others asks at the moment of its claim,
// which no time says: it is never answered with an end that it or another
// replacement brought about, not even one that comes while it claims.
func (c *Claims) request(ctx context.Context, in *ClaimRunInput) (dedup.Request, error) {
	req := in.Request
	if in.Again || in.OnDuplicate == spec.OnDuplicateReplace {
		req.At = time.Time{}
		return req, nil
	}
	if !req.At.IsZero() {
		return req, nil
	}
	now, err := c.Claims.Now(ctx)
	if err != nil {
		return req, err
	}
	info := activity.GetInfo(ctx)
	req.At = now.Add(-max(info.StartedTime.Sub(in.Began), 0))
	return req, nil
}

// identify names who started a run of which nothing says so: Temporal knows by
// whom it was asked.
func (c *Claims) identify(ctx context.Context, in *ClaimRunInput) {
	if in.Request.Sender != "" {
		return
	}
	first, err := c.firstEvent(ctx, in.Owner.WorkflowID, in.Owner.RunKey)
	if err != nil {
		c.Logger.Debug("not known who started a run", zap.Error(err))
		return
	}
	in.Request.Sender = first.GetIdentity()
}

// AwaitRun waits until a run has ended, with all that belongs to it, and tells
// how.
func (c *Claims) AwaitRun(ctx context.Context, owner dedup.Owner) (*RunEnd, error) {
	unstick(ctx, c.Client, c.Namespace)
	defer beating(ctx)()
	const look = 500 * time.Millisecond
	for runID := owner.RunID; ; {
		err := c.Client.GetWorkflow(ctx, owner.WorkflowID, runID).Get(ctx, nil)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		// What is open still is a stage that unwinds, or the run itself after a
		// reset.
		switch answer := c.alive.Ask(ctx, owner); {
		case answer.Unsure:
			c.Logger.Debug("waiting for Temporal to say how a run ended")
		case !answer.Alive && reached(err):
			return c.endOf(ctx, owner)
		}
		if err := pause.For(ctx, look); err != nil {
			return nil, ctx.Err()
		}
		if runID, err = c.newest(ctx, owner); err != nil {
			runID = owner.RunID // that one is closed: the next look asks again
		}
	}
}
