// Package audit keeps what was decided about duplicates, so that each one can be
// looked up later: when, what, by whom, of which run, and why it came at all.
//
// Entries lie in one Redis stream per tenant, which is bounded: the oldest make
// way for new ones. Beside it are counts by the hour, which outlive the entries.
package audit

import (
	"time"

	"belay.run/internal/dedup"
)

// Entry is one decision about a request.
type Entry struct {
	// At is when it was decided; zero means when it is written, by Redis's
	// clock.
	At       time.Time `json:"at,omitzero"`
	Tenant   string    `json:"tenant"`
	Project  string    `json:"project"`
	Pipeline string    `json:"pipeline"`
	// Key is the business key, empty where only a request id came again.
	Key string `json:"key"`
	// Run is the workflow id of the run that asked; empty where none was
	// started for it. Node is the step that asked, "" for the pipeline.
	Run  string `json:"run"`
	Node string `json:"node"`
	// Owner is the workflow id of the run that holds the key, or that the
	// request had begun; OwnerRun is Temporal's run id of it.
	Owner    string `json:"owner"`
	OwnerRun string `json:"owner_run,omitempty"`
	// By is who asked: the sender of the request.
	By        string   `json:"by"`
	RootCause Cause    `json:"root_cause"`
	Decision  Decision `json:"decision"`
	// Mismatch: the two have other inputs.
	Mismatch  bool   `json:"mismatch,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	// Delivery tells this delivery of the request from others with its id. The
	// same delivery is written once, whoever finds it. Without one the request
	// id stands in; without either every write is an entry.
	Delivery string `json:"delivery,omitempty"`
	// Tier is what knew the answer.
	Tier string `json:"tier,omitempty"`
	// Reason is what an operator said, or what else there is to say.
	Reason string `json:"reason,omitempty"`
}

// Ref is the owner's run as every command takes it; empty where it is unknown.
func (e *Entry) Ref() string {
	if e.Owner == "" || e.OwnerRun == "" {
		return e.Owner
	}
	return e.Owner + "@" + e.OwnerRun
}

// The tiers: the memory of the process, Redis, or Temporal, which refused to
// start a second run under an id.
const (
	TierLocal    = "local"
	TierRedis    = "redis"
	TierTemporal = "temporal"
)

// Decision is what was done about a request.
type Decision string

// The decisions that block a duplicate.
const (
	// Attached: it followed the run that was in flight.
	Attached Decision = "attached"
	// Answered: it took over the end of a run that was over.
	Answered Decision = "answered"
	// Rejected: it was refused.
	Rejected Decision = "rejected"
	// Mismatch: it was refused since its inputs are others.
	Mismatch Decision = "mismatch"
)

// The decisions that let something run which would have been blocked, or might
// have been.
const (
	// Replaced: the older run was cancelled for it.
	Replaced Decision = "replaced"
	// Rerun: somebody meant it.
	Rerun Decision = "rerun"
	// Takeover: the owner was dead.
	Takeover Decision = "takeover"
	// OperatorRelease: an operator took the key from its owner.
	OperatorRelease Decision = "operator_release"
	// Unchecked: Redis was away, and the risk is low.
	Unchecked Decision = "unchecked"
)

// Decisions lists all of them.
func Decisions() []Decision {
	return []Decision{Attached, Answered, Rejected, Mismatch, Replaced, Rerun, Takeover, OperatorRelease, Unchecked}
}

// Blocked reports whether the request did not run.
func (d Decision) Blocked() bool {
	switch d {
	case Attached, Answered, Rejected, Mismatch:
		return true
	case Replaced, Rerun, Takeover, OperatorRelease, Unchecked:
		return false
	}
	return false
}

// Cause is why a duplicate came at all.
type Cause string

// The root causes.
const (
	// ClientRetry: the same sender sent the same request again.
	ClientRetry Cause = "client_retry"
	// Redelivery: another sender delivered the same request.
	Redelivery Cause = "redelivery"
	// DoubleTrigger: the same sender made a second request.
	DoubleTrigger Cause = "double_trigger"
	// CrossInstance: another sender made a request of its own.
	CrossInstance Cause = "cross_instance"
)

// Causes lists all of them.
func Causes() []Cause { return []Cause{ClientRetry, Redelivery, DoubleTrigger, CrossInstance} }

// RootCause tells from the two requests why the second came. A sender that is
// not known is nobody's.
func RootCause(original, this dedup.Request) Cause {
	sameID := original.ID != "" && original.ID == this.ID
	sameSender := original.Sender != "" && original.Sender == this.Sender
	switch {
	case sameID && sameSender:
		return ClientRetry
	case sameID:
		return Redelivery
	case sameSender:
		return DoubleTrigger
	}
	return CrossInstance
}
