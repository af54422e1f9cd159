package run

import "time"

// Document describes a run under -o json, and in Temporal as the result of the
// pipeline's workflow (there without the steps, which lie in the results of the
// stages).
type Document struct {
	ID       string         `json:"id"`
	RunID    string         `json:"run_id"`
	URL      string         `json:"url,omitempty"`
	Pipeline string         `json:"pipeline"`
	Tenant   string         `json:"tenant"`
	Project  string         `json:"project"`
	Inputs   map[string]any `json:"inputs"`
	Status   Status         `json:"status"`
	Cause    *Cause         `json:"cause,omitempty"`
	// DuplicateOf is the id of the run that stands for this one, and
	// DuplicateRunID its run id. Rejected says that this one was refused because
	// of it, in place of following it.
	DuplicateOf    string      `json:"duplicate_of,omitempty"`
	DuplicateRunID string      `json:"duplicate_run_id,omitempty"`
	Rejected       bool        `json:"rejected,omitempty"`
	DedupKey       string      `json:"dedup_key,omitempty"`
	StartedAt      *time.Time  `json:"started_at,omitempty"`
	EndedAt        *time.Time  `json:"ended_at,omitempty"`
	WaitingFor     *WaitingFor `json:"waiting_for,omitempty"`
	Resources      []Resource  `json:"resources"`
	Stages         []Stage     `json:"stages"`
	// Notes are warnings worth a person's attention that changed no state.
	Notes []string `json:"notes,omitempty"`
	// RunKey is Temporal's first run id of the run: the name of its logs.
	RunKey string `json:"run_key"`
}

// Stage describes a stage, or one leg of a matrix stage, or the finally steps
// of the pipeline (Name "finally", Finally true).
type Stage struct {
	Name       string      `json:"name"`
	Leg        Leg         `json:"leg,omitempty"`
	Node       string      `json:"node"`
	Status     Status      `json:"status"`
	Cause      *Cause      `json:"cause,omitempty"`
	StartedAt  *time.Time  `json:"started_at,omitempty"`
	EndedAt    *time.Time  `json:"ended_at,omitempty"`
	Host       string      `json:"host,omitempty"`
	Finally    bool        `json:"finally"`
	WaitingFor *WaitingFor `json:"waiting_for,omitempty"`
	Resources  []Resource  `json:"resources"`
	Steps      []Step      `json:"steps"`
	// WorkflowID and RunID name the stage's own workflow once it started.
	WorkflowID string `json:"workflow_id,omitempty"`
	RunID      string `json:"run_id,omitempty"`
	// Outputs are the declared outputs of the stage's steps, step by step.
	Outputs map[string]map[string]string `json:"outputs,omitempty"`
	// Artifacts is the store key of what the stage saved for others.
	Artifacts string `json:"artifacts,omitempty"`
	// Notes are warnings worth a person's attention that changed no state.
	Notes []string `json:"notes,omitempty"`
}

// Step describes a step: one activity and its attempts.
type Step struct {
	Name      string            `json:"name"`
	Node      string            `json:"node"`
	Group     string            `json:"group,omitempty"`
	Status    Status            `json:"status"`
	Cause     *Cause            `json:"cause,omitempty"`
	Attempts  int               `json:"attempts"`
	ExitCode  *int              `json:"exit_code,omitempty"`
	Outputs   map[string]string `json:"outputs,omitempty"`
	StartedAt *time.Time        `json:"started_at,omitempty"`
	EndedAt   *time.Time        `json:"ended_at,omitempty"`
	Finally   bool              `json:"finally"`
	Rollback  bool              `json:"rollback,omitempty"`
	// GracePeriod is what its processes have between SIGTERM and SIGKILL, as a
	// file writes it; "" where it has none.
	GracePeriod string `json:"grace_period,omitempty"`
	Ignored     bool   `json:"ignored,omitempty"`
	// DuplicateOf is the id of the run whose step has run in place of this one.
	DuplicateOf string      `json:"duplicate_of,omitempty"`
	WaitingFor  *WaitingFor `json:"waiting_for,omitempty"`
	Resources   []Resource  `json:"resources"`
	// CPU and MaxRSS are what the step's process tree used: seconds of user
	// and system time together, and the largest resident set in bytes.
	CPU    float64 `json:"cpu_seconds,omitempty"`
	MaxRSS int64   `json:"max_rss_bytes,omitempty"`
}

// Kinds of what is waited for that are groups.
const (
	WaitsGroup = "group" // a slot of a concurrency group
	WaitsQuota = "quota" // a run's turn among those of its tenant
)

// WaitingFor says what a node that is not running yet, or is ending, waits for.
type WaitingFor struct {
	Kind     string     `json:"kind"`
	Name     string     `json:"name,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Position int        `json:"position,omitempty"`
	Holder   string     `json:"holder,omitempty"`
	// Reason is why it has not come so far: the failure of the last attempt.
	Reason string `json:"reason,omitempty"`
}
