// Package workflows holds Belay's workflows. They are deterministic and small:
// whatever touches the world is an activity.
package workflows

import (
	"time"

	"belay.run/internal/dedup"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// Names that programs outside of the worker use.
const (
	// PipelineWorkflow and StageWorkflow are the registered workflow types.
	PipelineWorkflow = "Pipeline"
	StageWorkflow    = "Stage"

	// StatusQuery returns a run.Document from a pipeline (stages without
	// steps) and a run.Stage from a stage.
	StatusQuery = "status"

	// GroupStateQuery returns the GroupState of a concurrency group.
	GroupStateQuery = "state"

	// NowSignal, sent to a pipeline before or after a cancel, leaves out what
	// finally steps have not run yet and ends those that run. No payload.
	NowSignal = "now"

	// CancelNodeUpdate cancels one step; it is sent to the stage's workflow
	// with a CancelNode. A whole stage is cancelled as a workflow.
	CancelNodeUpdate = "cancel_node"
)

// PipelineInput starts a run. Only File is needed: a start from Temporal's UI
// sends {"file": "<the text>"}.
type PipelineInput struct {
	// File is the text of the pipeline file; Path is its name in errors.
	File string `json:"file"`
	Path string `json:"path,omitempty"`
	// Inputs are the values given, as text; the plan checks and types them.
	Inputs  map[string]string `json:"inputs,omitempty"`
	Tenant  string            `json:"tenant,omitempty"`
	Project string            `json:"project,omitempty"`
	// SourceRef is the store key of the packed folder of `source: {path: …}`.
	SourceRef string `json:"source_ref,omitempty"`
	// Who asked, when, and under which id: kept by retries of one request.
	Sender      string    `json:"sender,omitempty"`
	RequestID   string    `json:"request_id,omitempty"`
	RequestedAt time.Time `json:"requested_at,omitzero"`
	// DedupKey stands in for the key that the file gives, OnDuplicate for what
	// it says of duplicates. Rerun runs over one that has completed.
	DedupKey    string `json:"dedup_key,omitempty"`
	OnDuplicate string `json:"on_duplicate,omitempty"`
	Rerun       bool   `json:"rerun,omitempty"`
	// Delivery names this start alone: each start of one request has its own.
	Delivery string `json:"delivery,omitempty"`
}

// StageInput starts a stage: its part of the plan, and what it needs of the run.
type StageInput struct {
	RunKey    string     `json:"run_key"`
	RunID     string     `json:"run_id"`
	ID        string     `json:"id"`
	Tenant    string     `json:"tenant"`
	Project   string     `json:"project"`
	Pipeline  string     `json:"pipeline"`
	Stage     spec.Stage `json:"stage"`
	Leg       run.Leg    `json:"leg,omitempty"`
	SourceRef string     `json:"source_ref,omitempty"`
	// Source is set where the workspace is filled from git.
	Source *spec.Source `json:"source,omitempty"`
	// Env is the pipeline's, evaluated; Scope is what expressions may read
	// beside it: inputs, stages, pipeline, run, tenant and project.
	Env   map[string]string `json:"env,omitempty"`
	Scope map[string]any    `json:"scope,omitempty"`
	// Artifacts are the store keys of what the stages it needs have saved.
	Artifacts []string `json:"artifacts,omitempty"`
	// Request and Delivery are who asked for the run, Rerun whether it is meant
	// to run over what has completed: what steps with keys claim by.
	Request  dedup.Request `json:"request,omitzero"`
	Delivery string        `json:"delivery,omitempty"`
	Rerun    bool          `json:"rerun,omitempty"`
	// Finally marks the stage that runs the pipeline's finally steps.
	Finally        bool          `json:"finally,omitempty"`
	ReleaseTimeout time.Duration `json:"release_timeout"`
}

// CancelNode asks a stage to cancel one of its steps.
type CancelNode struct {
	Node   string `json:"node"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// Search attributes, all of type Keyword, set on pipelines and stages.
const (
	AttrTenant   = "BelayTenant"
	AttrProject  = "BelayProject"
	AttrPipeline = "BelayPipeline"
	AttrStatus   = "BelayStatus"
	AttrDedupKey = "BelayDedupKey"
)
