// Package activities holds what touches the world on behalf of workflows: it
// plans files, takes stages onto hosts, runs steps, and gives everything back.
// Activities are methods on structs that carry their dependencies: Control
// beside the workflows, Binder on the shared step queues, Steps on the queue of
// one host, Light on the queue of steps that need neither process nor folder.
package activities

import (
	"time"

	"belay.run/internal/dedup"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/task"
)

// PlanInput is the text of a pipeline file and the inputs given for it.
type PlanInput struct {
	File   string            `json:"file"`
	Tenant string            `json:"tenant,omitempty"`
	Path   string            `json:"path,omitempty"`
	Inputs map[string]string `json:"inputs,omitempty"`
	// SourceRef is set where the starter has packed the source folder.
	SourceRef string `json:"source_ref,omitempty"`
}

// CauseInput names the workflow whose cancel is to be explained.
type CauseInput struct {
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
	// RunKey is set where it is a whole run that is cancelled: all its hosts
	// are told of it.
	RunKey string `json:"run_key,omitempty"`
}

// CancelCause says who cancelled a workflow and why.
type CancelCause struct {
	// FromParent is true where the parent passed its own cancel on; the
	// parent knows the cause then.
	FromParent bool      `json:"from_parent,omitempty"`
	Cause      run.Cause `json:"cause"`
	// At is when Temporal took the request.
	At time.Time `json:"at,omitzero"`
}

// Owner names a stage and its workflow: who holds a workspace on a host.
type Owner struct {
	RunKey     string `json:"run_key"`
	Node       string `json:"node"`
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id"`
}

// Binding is the host that took a stage.
type Binding struct {
	Host  string `json:"host"`
	Queue string `json:"queue"`
}

// PrepareInput says what a stage's workspace is filled with.
type PrepareInput struct {
	Owner     Owner        `json:"owner"`
	SourceRef string       `json:"source_ref,omitempty"`
	Source    *spec.Source `json:"source,omitempty"`
	Artifacts []string     `json:"artifacts,omitempty"`
}

// StepInput is a step with every expression evaluated.
type StepInput struct {
	Owner Owner     `json:"owner"`
	Node  string    `json:"node"`
	Step  spec.Step `json:"step"`
	// Env is the step's whole environment as the file gives it, without what
	// the worker adds.
	Env map[string]string `json:"env,omitempty"`
	// Attempts counts the attempts made by earlier activities of this step.
	Attempts int `json:"attempts,omitempty"`
	// Body: the step belongs to the body of its run, so that the run's cancel
	// ends it; what follows, such as a finally, goes on.
	Body bool `json:"body,omitempty"`
	// Vars are BELAY_RUN_ID and its like.
	Vars map[string]string `json:"vars,omitempty"`
	// Claim is set where the step has a key.
	Claim *Claiming `json:"claim,omitempty"`
	// Services are where the services of its stage are reached.
	Services []ServiceAddress `json:"services,omitempty"`
	// Holder is who holds the step's resources, save node and attempt; Label is
	// where else they may be released, and Release how long that may take.
	Holder  resource.Owner `json:"holder,omitzero"`
	Label   string         `json:"label,omitempty"`
	Release time.Duration  `json:"release,omitempty"`
	// Held is the number of the attempt that took what the stage holds over all
	// its steps; 0 where it holds nothing.
	Held int `json:"held,omitempty"`
}

// StepResult is how an attempt of a step ended. It travels as the result, or
// in the details of the error.
type StepResult struct {
	Attempt   int               `json:"attempt"`
	StartedAt time.Time         `json:"started_at,omitzero"`
	EndedAt   time.Time         `json:"ended_at,omitzero"`
	ExitCode  *int              `json:"exit_code,omitempty"`
	Signal    string            `json:"signal,omitempty"`
	Outputs   map[string]string `json:"outputs,omitempty"`
	CPU       float64           `json:"cpu_seconds,omitempty"`
	MaxRSS    int64             `json:"max_rss_bytes,omitempty"`
	// Cause is set where the attempt did not succeed.
	Cause *run.Cause `json:"cause,omitempty"`
	// Resources are what the attempt held, Unreleased what of that, or of
	// earlier attempts, it could not give back.
	Resources  []run.Resource   `json:"resources,omitempty"`
	Unreleased []resource.Entry `json:"unreleased,omitempty"`
	// Notes are warnings worth a person's attention.
	Notes []string `json:"notes,omitempty"`
	// Services says of each service of the stage that has ended how it did.
	Services []string `json:"services,omitempty"`
	// Claim is the claim that the attempt held; nil where the step has no key,
	// or another's result stands for its own.
	Claim *dedup.Record `json:"claim,omitempty"`
	// DuplicateOf is who has run in place of this step.
	DuplicateOf *dedup.Owner `json:"duplicate_of,omitempty"`
}

// Progress is what a step's heartbeat shows while it is pending.
type Progress struct {
	Phase string    `json:"phase"`
	Since time.Time `json:"since"`
	// Attempt is which one of the step it is, over all its activities.
	Attempt int `json:"attempt,omitempty"`
	// Name is what it waits for, and Holder who has that, where it does.
	Name   string `json:"name,omitempty"`
	Holder string `json:"holder,omitempty"`
	// Position is its place in the queue for that, from 1.
	Position int `json:"position,omitempty"`
	// Resources are what it holds.
	Resources []run.Resource `json:"resources,omitempty"`
	// Services is as in [StepResult].
	Services []string `json:"services,omitempty"`
}

// Phases of a step as its heartbeat shows them.
const (
	PhaseClaiming  = "waiting for a claim"
	PhaseWaiting   = "waiting for a process slot"
	PhaseFull      = "waiting for room among light tasks"
	PhaseLocking   = "waiting for a lock"
	PhaseRunning   = "running"
	PhaseEnding    = "ending"
	PhaseReleasing = "releasing"
)

// EndInput asks a host to end the processes of steps at once.
type EndInput struct {
	Owner Owner     `json:"owner"`
	Nodes []string  `json:"nodes"`
	Cause run.Cause `json:"cause"`
}

// SaveInput names the files that a stage hands to others.
type SaveInput struct {
	Owner Owner    `json:"owner"`
	Paths []string `json:"paths"`
}

// LightInput is a step that needs neither a process nor a workspace.
type LightInput struct {
	Node string         `json:"node"`
	Uses string         `json:"uses"`
	With map[string]any `json:"with,omitempty"`
	// Claim is set where the step has a key; Outputs are those that it declares.
	// Timeout is that of the step, which does not count the wait for its key.
	Claim   *Claiming     `json:"claim,omitempty"`
	Outputs []string      `json:"outputs,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	// To is where the router has sent it, "" in runs that are older than that.
	To spec.Destination `json:"to,omitempty"`
	// Attempts counts the attempts made by earlier activities of this step.
	Attempts int `json:"attempts,omitempty"`
	// Secrets are the names of those that it is given.
	Secrets []string `json:"secrets,omitempty"`
	// Origin says for whom it runs.
	Origin *task.Origin `json:"origin,omitempty"`
}
