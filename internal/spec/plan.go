// Package spec reads pipeline files: it parses and checks the YAML, says
// everything that is wrong with it at once, and freezes what is right into a
// Plan, the only thing that workflows ever see of a file.
package spec

import (
	"time"

	"belay.run/internal/run"
)

// Plan is a pipeline file after parsing, checking, applying of defaults and
// binding of inputs. It is recorded in Temporal's history; fields are only ever
// added, so that a newer worker reads an older run's plan.
type Plan struct {
	Name    string            `json:"name"`
	Inputs  map[string]any    `json:"inputs,omitempty"`
	Source  *Source           `json:"source,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Stages  []Stage           `json:"stages"`
	Finally []Step            `json:"finally,omitempty"`
	// FinallyReads are the stages that expressions in Finally read.
	FinallyReads []string `json:"finally_reads,omitempty"`
	// Dedup is nil where the file has no key; a start may still give one.
	Dedup       *Dedup       `json:"dedup,omitempty"`
	Concurrency *Concurrency `json:"concurrency,omitempty"`
	Risk        Risk         `json:"risk,omitempty"`
	// TenantRuns is how many runs its tenant may have at once, as the worker's
	// settings said when the plan was made; 0: no bound.
	TenantRuns int `json:"tenant_runs,omitempty"`
	// Notify is nil where nobody is told of what could not be released.
	Notify *Notify `json:"notify,omitempty"`

	Timeout        time.Duration `json:"timeout"`
	FinallyTimeout time.Duration `json:"finally_timeout"`
	ReleaseTimeout time.Duration `json:"release_timeout"`
}

// Legs is how many stages a run of the plan has, each leg of a matrix counted.
func (p *Plan) Legs() int {
	n := 0
	for i := range p.Stages {
		if m := p.Stages[i].Matrix; m != nil {
			n += len(m.Legs)
			continue
		}
		n++
	}
	return n
}

// Source is what is laid into each stage's workspace before its first step:
// either a folder, or a git repository at a ref. Path is as written in the file;
// who starts the run packs it and hands the worker a reference.
type Source struct {
	Path    string   `json:"path,omitempty"`
	Exclude []string `json:"exclude,omitempty"`
	Git     string   `json:"git,omitempty"`
	Ref     string   `json:"ref,omitempty"`
}

// Stage is one stage of a plan. Strings that may hold ${{ }} are kept as
// written and evaluated in the workflow: Env, RunsOn, When.
type Stage struct {
	Name   string            `json:"name"`
	Needs  []string          `json:"needs,omitempty"`
	When   *Condition        `json:"when,omitempty"`
	Matrix *Matrix           `json:"matrix,omitempty"`
	RunsOn string            `json:"runs_on,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
	Steps  []Step            `json:"steps"`
	// Rollback steps run, before Finally, when the stage has failed and an
	// on_failure asks for them.
	Rollback []Step `json:"rollback,omitempty"`
	// Finally steps run when the others have ended, however they ended.
	Finally   []Step   `json:"finally,omitempty"`
	Artifacts []string `json:"artifacts,omitempty"`
	// Services run beside the steps, from before the first to after the last.
	Services []Service `json:"services,omitempty"`
	// Resources are held from before the first step to after the last of Finally.
	Resources []Resource `json:"resources,omitempty"`
	// Reads are the stages that expressions of this one read.
	Reads       []string     `json:"reads,omitempty"`
	Concurrency *Concurrency `json:"concurrency,omitempty"`

	Timeout        time.Duration `json:"timeout"`
	FinallyTimeout time.Duration `json:"finally_timeout"`
	OnFailure      OnFailure     `json:"on_failure"`
	// OnWorkerLost is LostFail or LostRerun.
	OnWorkerLost string `json:"on_worker_lost"`
}

// What a stage does when the host that holds its workspace is lost.
const (
	LostFail  = "fail"
	LostRerun = "rerun"
)

// Size is how many steps the stage has, those of groups counted one by one.
func (s *Stage) Size() int {
	n := len(s.Finally) + len(s.Rollback)
	for i := range s.Steps {
		n += max(len(s.Steps[i].Parallel), 1)
	}
	return n
}

// Condition is a `when`. One that reads a status replaces the rule that
// everything before must have gone well.
type Condition struct {
	Expr        string `json:"expr"`
	ReadsStatus bool   `json:"reads_status,omitempty"`
}

// Matrix is a stage's matrix, already expanded: include and exclude applied,
// legs in a fixed order, no two alike, at most 256.
type Matrix struct {
	Legs []run.Leg `json:"legs"`
	// MaxParallel is how many legs run at once; 0 means all.
	MaxParallel int  `json:"max_parallel,omitempty"`
	FailFast    bool `json:"fail_fast,omitempty"`
}

// Step is one step, or a group of them where Parallel is set: exactly one of
// Run, Uses and Parallel is. Env, WorkingDir and the strings in With may hold
// ${{ }}. Names are unique in a stage, over groups too.
type Step struct {
	Name string    `json:"name"`
	Run  []Command `json:"run,omitempty"`
	// Container is nil where the script runs on the host itself.
	Container  *Container        `json:"container,omitempty"`
	Shell      string            `json:"shell,omitempty"`
	WorkingDir string            `json:"working_dir,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Secrets    []string          `json:"secrets,omitempty"`
	Uses       string            `json:"uses,omitempty"`
	With       map[string]any    `json:"with,omitempty"`
	// Labels are what a built-in step says of itself for the router; Route is
	// where it sends it, nil in plans that are older than it.
	Labels   map[string]string `json:"labels,omitempty"`
	Route    *Route            `json:"route,omitempty"`
	Parallel []Step            `json:"parallel,omitempty"`
	FailFast bool              `json:"fail_fast,omitempty"`
	When     *Condition        `json:"when,omitempty"`
	Outputs  []string          `json:"outputs,omitempty"`
	Dedup    *Dedup            `json:"dedup,omitempty"`
	// Risk says what a step with a key does while Redis cannot be reached.
	Risk Risk `json:"risk,omitempty"`
	// Resources are what each attempt holds while its process runs.
	Resources []Resource `json:"resources,omitempty"`

	Timeout     time.Duration `json:"timeout"`
	GracePeriod time.Duration `json:"grace_period"`
	Retry       Retry         `json:"retry"`
	OnFailure   OnFailure     `json:"on_failure"`
	// OutputLimit is how many bytes of output are kept in the log.
	OutputLimit int64 `json:"output_limit,omitempty"`
	// Limits are nil where the file sets none.
	Limits *Limits `json:"limits,omitempty"`
}

// Route is where a built-in step runs, and which rule said so.
type Route struct {
	To   Destination `json:"to"`
	Rule string      `json:"rule,omitempty"`
}

// Destination is where a built-in step runs.
type Destination string

// The destinations.
const (
	// ToLight is among the light tasks of any worker.
	ToLight Destination = "light"
	// ToHost is on the host that holds the stage's workspace, where it takes the
	// place of a process.
	ToHost Destination = "host"
	// ToControl is beside the workflows: it does nothing.
	ToControl Destination = "control"
)

// Command is a script of a step, with a time limit of its own where Timeout is
// not 0. A step written as a plain string has one command.
type Command struct {
	Script  string        `json:"script"`
	Timeout time.Duration `json:"timeout,omitempty"`
}

// Retry says how often a step is tried and how long it waits in between.
type Retry struct {
	// MaxAttempts counts the first attempt too; 1 means no retry.
	MaxAttempts     int           `json:"max_attempts"`
	InitialInterval time.Duration `json:"initial_interval,omitempty"`
	MaxInterval     time.Duration `json:"max_interval,omitempty"`
	Backoff         float64       `json:"backoff,omitempty"`
	// ExitCodes are the codes on which it is tried again; empty means on any.
	ExitCodes []int `json:"exit_codes,omitempty"`
}

// Action is what a parent does when a child failed.
type Action string

// The actions of on_failure.
const (
	Abort    Action = "abort"
	Continue Action = "continue"
	Ignore   Action = "ignore"
	// Rollback is Abort, and runs the stage's rollback steps.
	Rollback Action = "rollback"
)

// OnFailure is what happens when a node fails, by class of trigger. Each is set.
type OnFailure struct {
	Timeout Action `json:"timeout"`
	Error   Action `json:"error"`
	Lost    Action `json:"lost"`
	Default Action `json:"default"`
}

// For is the action for a node that stopped because of t.
func (o OnFailure) For(t run.Trigger) Action {
	switch t {
	case run.TriggerPipelineTimeout, run.TriggerStageTimeout, run.TriggerStepTimeout, run.TriggerCommandTimeout:
		return o.Timeout
	case run.TriggerExitCode, run.TriggerProcessCrashed, run.TriggerLimitExceeded, run.TriggerInvalid:
		return o.Error
	case run.TriggerWorkerLost:
		return o.Lost
	case run.TriggerUser, run.TriggerSuperseded, run.TriggerDependencyFailed,
		run.TriggerDependencyUnavailable, run.TriggerMaintenance, run.TriggerGroupFull:
		return o.Default
	}
	return o.Default
}
