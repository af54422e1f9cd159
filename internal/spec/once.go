package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"belay.run/internal/expr"
)

// Bounds of keys and of names of groups, evaluated, in bytes.
const (
	MaxKey   = 1024
	MaxGroup = 1024
)

// WindowAuto is how a file says that the window follows measured durations.
const WindowAuto = "auto"

// Dedup says under which business key a pipeline or a step runs once.
type Dedup struct {
	// Key may hold ${{ }}; evaluated, it has 1 to 1024 bytes, see [CheckKey].
	Key string `json:"key"`
	// Env are the variables that the key of a pipeline reads.
	Env []string `json:"env,omitempty"`
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
	// Group may hold ${{ }}; evaluated, it has 1 to 1024 bytes, see [CheckGroup].
	// Groups are one tenant's and project's.
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

// DefaultDedup is what a key means that nothing more is said about, such as one
// that only the start of a run gives: key is taken as it is.
func DefaultDedup(key string) *Dedup {
	return &Dedup{
		Key: expr.Literal(key), OnDuplicate: OnDuplicateAttach, OnMismatch: OnDuplicateAttach, ClaimTimeout: defaultClaimTimeout,
	}
}

// DedupKey is the key of the pipeline, "" where it has none. It is the same
// wherever it is evaluated: by who starts a run, and in the run.
func (p *Plan) DedupKey(tenant, project string) (string, error) {
	if p.Dedup == nil {
		return "", nil
	}
	inputs, err := p.plainInputs()
	if err != nil {
		return "", err
	}
	scope := expr.Scope{
		"inputs": inputs, "tenant": tenant, "project": project, "pipeline": map[string]any{"name": p.Name},
	}
	env := make(map[string]any, len(p.Dedup.Env))
	for _, variable := range p.Dedup.Env {
		if env[variable], err = expr.String(p.Env[variable], scope); err != nil {
			return "", fmt.Errorf("env.%s: %w", variable, err)
		}
	}
	scope["env"] = env
	key, err := expr.String(p.Dedup.Key, scope)
	if err != nil {
		return "", fmt.Errorf("dedup.key: %w", err)
	}
	if err := CheckKey(key); err != nil {
		return "", fmt.Errorf("dedup.key: %w", err)
	}
	return key, nil
}

// Fingerprint tells two sets of inputs apart: it is equal for equal inputs,
// wherever it is taken.
func (p *Plan) Fingerprint() (string, error) {
	inputs, err := p.plainInputs()
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(inputs)
	if err != nil {
		return "", fmt.Errorf("writing the inputs: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// plainInputs are the inputs as they are behind a passage through JSON, whether
// or not they had one: a plan in a workflow had, one in a starter had not.
func (p *Plan) plainInputs() (map[string]any, error) {
	b, err := json.Marshal(p.Inputs)
	if err != nil {
		return nil, fmt.Errorf("writing the inputs: %w", err)
	}
	inputs := map[string]any{}
	if err := json.Unmarshal(b, &inputs); err != nil {
		return nil, fmt.Errorf("reading the inputs: %w", err)
	}
	return inputs, nil
}

// KeyedSteps reports whether any step of the plan has a key.
func (p *Plan) KeyedSteps() bool {
	if anyKeyed(p.Finally) {
		return true
	}
	for i := range p.Stages {
		if anyKeyed(p.Stages[i].Steps) || anyKeyed(p.Stages[i].Rollback) || anyKeyed(p.Stages[i].Finally) {
			return true
		}
	}
	return false
}

func anyKeyed(steps []Step) bool {
	for i := range steps {
		if steps[i].Dedup != nil || anyKeyed(steps[i].Parallel) {
			return true
		}
	}
	return false
}
