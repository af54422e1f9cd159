// Package dedup decides whether something that bears a business key may run:
// atomic claims in Redis, each with an owner, a fencing token and, while its
// owner runs a step, a lease; and a local tier that answers hot duplicates
// without a round trip and never from a state that may have changed.
package dedup

import (
	"errors"
	"time"

	"belay.run/internal/run"
)

// Key is a business key in its space: of a pipeline where Pipeline is set, else
// of a step, which two pipelines of a project may share.
type Key struct {
	Tenant   string `json:"tenant"`
	Project  string `json:"project"`
	Pipeline string `json:"pipeline,omitempty"`
	Name     string `json:"name"`
}

// Owner is who holds a claim: a run by its key, and a node of it, "" for the
// pipeline itself. WorkflowID and RunID name the run's workflow, to ask Temporal
// whether it lives and to point people to it.
type Owner struct {
	RunKey     string `json:"run_key"`
	Node       string `json:"node,omitempty"`
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
}

// Same reports whether two owners are the same node of the same run.
func (o Owner) Same(other Owner) bool { return o.RunKey == other.RunKey && o.Node == other.Node }

// State is that of a claim.
type State string

// The states of a claim. Running blocks until its owner settles it or is dead;
// Completed blocks until the window is over; the others block nobody, save that
// Failed and Canceled answer requests that were made before they ended.
const (
	Running   State = "running"
	Completed State = "completed"
	Failed    State = "failed"
	Canceled  State = "canceled"
	// Released: an operator took it away.
	Released State = "released"
)

// ends reports whether a claim ends so.
func (s State) ends() bool { return s == Completed || s == Failed || s == Canceled }

// Request is who asks, under which id, and when by Redis's clock.
type Request struct {
	ID     string    `json:"id"`
	Sender string    `json:"sender,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Claim asks to run under a key.
type Claim struct {
	Key     Key
	Owner   Owner
	Request Request
	// Fingerprint of the inputs: the same key with another is reported.
	Fingerprint string
	// Lease is how long the claim is held without a renewal; 0 means as long
	// as Temporal says that the owner's run is open.
	Lease time.Duration
	// Rerun claims over a completed one.
	Rerun bool
	// Dead is the token of an in-flight claim whose owner is proved dead: it
	// is taken over if it is still that one.
	Dead int64
	// Replicate waits a moment for a replica to have the claim, where Redis has
	// any, so that it outlives a failover. What is at high risk asks for it.
	Replicate bool
}

// Decision is the answer to a claim.
type Decision string

// The decisions.
const (
	// Granted: run. Resumed: the same owner holds it already; go on, under the
	// new token.
	Granted Decision = "granted"
	Resumed Decision = "resumed"
	// Done: the same owner has completed it; take the recorded result.
	Done Decision = "done"
	// InFlight: another owner runs. Duplicate: another owner completed it
	// inside its window.
	InFlight  Decision = "in_flight"
	Duplicate Decision = "duplicate"
	// Late: the request was made before another owner's failure or cancel
	// ended; that end is its answer.
	Late Decision = "late"
	// Redelivered: this request id has begun a run already, which is over; the
	// run is named by the record.
	Redelivered Decision = "redelivered"
)

// Runs reports whether the claimer may run.
func (d Decision) Runs() bool { return d == Granted || d == Resumed }

// Verdict is what a claim came to.
type Verdict struct {
	Decision Decision
	// Record is the claim as it now is: the claimer's own where it runs, else
	// the one that blocks it.
	Record Record
	// Mismatch: the one that blocks has other inputs.
	Mismatch bool
	// Expired: the blocking owner's lease has run out, so that it is worth
	// asking whether it lives.
	Expired bool
	// Local: answered by the local tier.
	Local bool
	// Replicated: a replica has the claim, where that was asked for.
	Replicated bool
	// At is when it was decided, by Redis's clock.
	At time.Time
}

// Record is a claim as Redis keeps it.
type Record struct {
	Key         Key        `json:"key"`
	State       State      `json:"state"`
	Owner       Owner      `json:"owner"`
	Request     Request    `json:"request"`
	Token       int64      `json:"token"`
	Generation  int        `json:"generation"`
	Fingerprint string     `json:"fingerprint,omitempty"`
	ClaimedAt   time.Time  `json:"claimed_at"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	// Until is the end of the lease of a running claim, and of the window of a
	// completed one.
	Until  *time.Time `json:"until,omitempty"`
	Result Result     `json:"result,omitzero"`
}

// Result is how the owner ended, for duplicates to take over.
type Result struct {
	Status   run.Status        `json:"status,omitempty"`
	ExitCode *int              `json:"exit_code,omitempty"`
	Cause    *run.Cause        `json:"cause,omitempty"`
	Summary  string            `json:"summary,omitempty"`
	Outputs  map[string]string `json:"outputs,omitempty"`
	// OutputsRef is the store key of outputs over 4 KiB.
	OutputsRef string `json:"outputs_ref,omitempty"`
}

// Held names a claim by who holds it and under which token: only who knows both
// may change it.
type Held struct {
	Key   Key   `json:"key"`
	Owner Owner `json:"owner"`
	Token int64 `json:"token"`
}

// Settlement ends a claim.
type Settlement struct {
	Held
	// State is Completed, Failed or Canceled.
	State State
	// Window is how long a completed one blocks from now.
	Window time.Duration
	Result Result
	// Died says that the owner did not end but is dead. Where the claim is then
	// Canceled, whoever claims next does as who takes over: the idempotency key
	// stays, since nobody knows how far the owner had come.
	Died bool
	// Grant is the claim as it was granted, if it is at hand: with it a claim
	// that Redis has lost since is put back in full before it ends.
	Grant *Record
}

// ErrNotOwner is returned where somebody changes a claim that is not theirs any
// more: another owner, or a newer token, holds it.
var ErrNotOwner = errors.New("the claim is held by another")
