package activities

import (
	"time"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// Claiming says what is claimed, for whom, and what is done about duplicates.
type Claiming struct {
	Key     dedup.Key     `json:"key"`
	Owner   dedup.Owner   `json:"owner"`
	Request dedup.Request `json:"request"`
	// Delivery names this start of the run alone.
	Delivery string `json:"delivery,omitempty"`
	// Pipeline is its name, also where the key is a step's.
	Pipeline    string `json:"pipeline"`
	Fingerprint string `json:"fingerprint,omitempty"`
	OnDuplicate string `json:"on_duplicate"`
	OnMismatch  string `json:"on_mismatch,omitempty"`
	Rerun       bool   `json:"rerun,omitempty"`
	// Risk decides whether it goes on without Redis; ClaimTimeout is how long
	// one at high risk waits for it.
	Risk         spec.Risk     `json:"risk,omitempty"`
	ClaimTimeout time.Duration `json:"claim_timeout,omitempty"`
	// Window is 0 where it is derived from what was measured, and from Timeout.
	Window  time.Duration `json:"window,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
}

// ClaimRunInput claims for a pipeline.
type ClaimRunInput struct {
	Claiming

	// Began is when the run's workflow was started, by Temporal's clock.
	Began time.Time `json:"began"`
	// Again: those that were in the way have made way.
	Again bool `json:"again,omitempty"`
}

// ClaimResult is what a claim of a pipeline came to.
type ClaimResult struct {
	Decision dedup.Decision `json:"decision,omitempty"`
	// Answer is what is to be done about a duplicate; empty where the pipeline
	// may run.
	Answer audit.Decision `json:"answer,omitempty"`
	// Record is the pipeline's own claim, or the one that blocks it.
	Record   dedup.Record `json:"record"`
	Mismatch bool         `json:"mismatch,omitempty"`
	// Unchecked says why it may run although nobody knows whether it is a
	// duplicate.
	Unchecked string `json:"unchecked,omitempty"`
}

// RunEnd is how a run ended.
type RunEnd struct {
	RunID  string     `json:"run_id"`
	Status run.Status `json:"status"`
	Cause  *run.Cause `json:"cause,omitempty"`
	// Cut is when it was ended from outside, by Temporal's clock, with no code
	// of its own run: its stages have unwound after that.
	Cut *time.Time `json:"cut,omitempty"`
}

// SupersedeInput asks older runs to make way for a newer one.
type SupersedeInput struct {
	Claiming

	// Holder is who holds the key.
	Holder dedup.Owner `json:"holder"`
	// Began is when the newer run was started, by Temporal's clock.
	Began time.Time `json:"began"`
}

// Superseded is what came of it: By is a run newer still, to which this one is
// to make way, or nil where the way is free.
type Superseded struct {
	By *dedup.Owner `json:"by,omitempty"`
}

// SettleInput ends a claim.
type SettleInput struct {
	Claiming

	// Record is the claim as it was granted, where that is known: with it a
	// claim is settled that Redis has lost.
	Record *dedup.Record `json:"record,omitempty"`
	// Result is how it ended.
	Result dedup.Result `json:"result"`
	// Took is how long it ran.
	Took time.Duration `json:"took,omitempty"`
}

// Settled says what is worth knowing about the settlement; empty where all went
// well.
type Settled struct {
	Note string `json:"note,omitempty"`
}
