package dedup

import (
	"context"
	"time"
)

// Observer hears what claims come to, for metrics. It is called by whoever
// claims, so its methods return at once. They may be called concurrently.
type Observer interface {
	// Claiming is called when a claim begins, Claimed when it is decided.
	Claiming()
	Claimed(o *Observation)
}

// Observation is one claim that was decided.
type Observation struct {
	Key   Key
	Owner Owner
	// Decision is empty where Err is set.
	Decision Decision
	// Local: the local tier answered.
	Local bool
	Took  time.Duration
	Err   error
}

// Decisions lists all decisions.
func Decisions() []Decision {
	return []Decision{Granted, Resumed, Done, InFlight, Duplicate, Late, Redelivered}
}

// Observers are several that all hear the same.
type Observers []Observer

var _ Observer = Observers(nil)

// Claiming tells all of them.
func (s Observers) Claiming() {
	for _, o := range s {
		o.Claiming()
	}
}

// Claimed tells all of them.
func (s Observers) Claimed(o *Observation) {
	for _, each := range s {
		each.Claimed(o)
	}
}

// TierUp reports whether the local tier answers now.
func (c *Claims) TierUp() bool {
	return c.tier != nil && c.tier.on(c.tier.clock())
}

// Observed are claims whose decisions an observer hears of.
type Observed struct {
	*Claims

	observer Observer
}

// Observe returns the same claims, observed.
func Observe(c *Claims, o Observer) *Observed { return &Observed{Claims: c, observer: o} }

// Claim is that of [Claims].
func (c *Observed) Claim(ctx context.Context, claim Claim) (Verdict, error) {
	began := time.Now()
	c.observer.Claiming()
	v, err := c.Claims.Claim(ctx, claim)
	c.observer.Claimed(&Observation{
		Key: claim.Key, Owner: claim.Owner, Decision: v.Decision, Local: v.Local, Took: time.Since(began), Err: err,
	})
	return v, err
}

// ClaimBatch is that of [Claims]. Each claim of the batch took as long as all.
func (c *Observed) ClaimBatch(ctx context.Context, claims []Claim) ([]Verdict, error) {
	began := time.Now()
	for range claims {
		c.observer.Claiming()
	}
	verdicts, err := c.Claims.ClaimBatch(ctx, claims)
	took := time.Since(began)
	for i := range claims {
		o := &Observation{Key: claims[i].Key, Owner: claims[i].Owner, Took: took, Err: err}
		if err == nil {
			o.Decision, o.Local = verdicts[i].Decision, verdicts[i].Local
		}
		c.observer.Claimed(o)
	}
	return verdicts, err
}
