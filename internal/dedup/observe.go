package dedup

import "time"

// Observer hears what claims come to, for metrics. It is called by whoever
// claims, so its methods return at once. They may be called concurrently.
type Observer interface {
	// Claiming is called when a claim begins, Claimed when it is decided.
	Claiming()
	Claimed(o *Observation)
	// TierUp is called when the local tier begins to answer, and when it stops.
	TierUp(up bool)
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

// TierUp tells all of them.
func (s Observers) TierUp(up bool) {
	for _, o := range s {
		o.TierUp(up)
	}
}
