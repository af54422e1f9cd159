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
