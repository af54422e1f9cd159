// Package resource keeps what steps acquire and must give back: the kinds of
// resources, each one type in one file, and the ledger, which says of every run
// what it holds, what it gave back, and what nobody could.
package resource

import (
	"strconv"
	"strings"
	"time"

	"belay.run/internal/run"
)

// Owner is who holds a resource: an attempt of a step, a stage, or a pipeline.
type Owner struct {
	RunKey string `json:"run_key"`
	// WorkflowID and RunID are those of the run's workflow.
	WorkflowID string `json:"workflow_id"`
	RunID      string `json:"run_id,omitempty"`
	// Node is "" for the pipeline itself. Attempt is that of the step, or of the stage
	// to take what it holds over its steps; 0 for whatever is neither.
	Node     string `json:"node,omitempty"`
	Attempt  int    `json:"attempt,omitempty"`
	Tenant   string `json:"tenant,omitempty"`
	Project  string `json:"project,omitempty"`
	Pipeline string `json:"pipeline,omitempty"`
}

// Scope is which level of a run holds a resource: with it, it ends.
type Scope string

// The scopes.
const (
	ScopeStep     Scope = "step"
	ScopeStage    Scope = "stage"
	ScopePipeline Scope = "pipeline"
)

// Entry is what the ledger knows of one resource.
type Entry struct {
	Owner

	Kind  string            `json:"kind"`
	Name  string            `json:"name"`
	Scope Scope             `json:"scope"`
	State run.ResourceState `json:"state"`
	// ID is what the acquirer called it, at most [MaxID] bytes, never a secret.
	ID string `json:"id,omitempty"`
	// Host is where it is, "" where it is on none. Queue is the task queue on
	// which it can be released, "" for any.
	Host  string `json:"host,omitempty"`
	Queue string `json:"queue,omitempty"`
	// Label is the runs_on of the stage: other hosts that may release it.
	Label string `json:"label,omitempty"`
	// Release gives it back, where that takes a command.
	Release *Command `json:"release,omitempty"`
	// Provider is who issued a credential.
	Provider string `json:"provider,omitempty"`
	// Since is when it came to this state, Acquired when it was first written
	// down: what was acquired last is released first.
	Since    time.Time `json:"since"`
	Acquired time.Time `json:"acquired,omitzero"`
	// Attempts is how often its release was tried, Error why the last one
	// failed.
	Attempts int    `json:"attempts,omitempty"`
	Error    string `json:"error,omitempty"`
}

// MaxID is how many bytes an ID may have.
const MaxID = 1 << 10

// Command is a script that gives a resource back, frozen when it was acquired:
// the file it came from may be gone by then. It holds no secrets, only their
// names.
type Command struct {
	Script  string            `json:"script"`
	Shell   string            `json:"shell,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Secrets []string          `json:"secrets,omitempty"`
}

// Key tells the entry from all others of its run. The host is part of it: a
// stage that begins again elsewhere counts its attempts anew.
func (e *Entry) Key() string {
	return strings.Join([]string{e.Node, strconv.Itoa(e.Attempt), e.Kind, e.Name, e.Host}, "|")
}

// Holder is the key with the run it belongs to: the name under which a resource
// is held, made of what is known before it is acquired.
func (e *Entry) Holder() string { return e.RunKey + "|" + e.Key() }

// Open reports whether the resource is not known to be given back.
func (e *Entry) Open() bool { return e.State != run.ResourceReleased }

// Document is the entry as documents show it.
func (e *Entry) Document() run.Resource {
	return run.Resource{Kind: e.Kind, Name: e.Name, State: e.State, Attempts: e.Attempts, Error: e.Error}
}
