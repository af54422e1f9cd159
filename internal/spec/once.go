package spec

import "time"

// Dedup says under which business key a pipeline or a step runs once.
type Dedup struct {
	// Key may hold ${{ }}; evaluated, it has 1 to 1024 bytes.
	Key string `json:"key"`
	// Window is how long a completed one blocks others, counted from its
	// completion. 0 means auto: from measured durations.
	Window time.Duration `json:"window,omitempty"`
	// OnDuplicate is OnDuplicateAttach, -Reject or, on pipelines, -Replace.
	OnDuplicate string `json:"on_duplicate"`
	// OnMismatch is what happens to a duplicate with other inputs: it follows
	// OnDuplicate (attach), with a warning, or it is refused (reject).
	OnMismatch string `json:"on_mismatch"`
	// ClaimTimeout is how long one at high risk waits for Redis.
	ClaimTimeout time.Duration `json:"claim_timeout"`
}

// What is done with a duplicate.
const (
	OnDuplicateAttach  = "attach"
	OnDuplicateReject  = "reject"
	OnDuplicateReplace = "replace"
)

// Risk is how much harm a second run does: whether a key may go unchecked while
// Redis cannot be reached.
type Risk string

// The risks. What has a key is at high risk unless it says low.
const (
	RiskHigh Risk = "high"
	RiskLow  Risk = "low"
)

// Concurrency bounds how many pipelines or stages of a group run at once.
type Concurrency struct {
	// Group may hold ${{ }}. Groups are one tenant's and project's.
	Group string `json:"group"`
	Limit int    `json:"limit"`
	// OnFull is OnFullQueue, -CancelRunning or -Reject.
	OnFull string `json:"on_full"`
}

// What happens to one that finds its group full.
const (
	OnFullQueue         = "queue"
	OnFullCancelRunning = "cancel_running"
	OnFullReject        = "reject"
)
