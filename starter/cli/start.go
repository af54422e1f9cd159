package cli

import (
	"context"
	"strings"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/run"
	"belay.run/internal/tree"
	"belay.run/starter/runs"
	"belay.run/workflows"
)

const (
	// maxSummary is what Temporal keeps of a summary, in bytes.
	maxSummary = 390
	// maxRequestID bounds --request-id, so that the workflow id stays under
	// Temporal's limit.
	maxRequestID = 200
)

// request is what `run` asks Temporal to start.
type request struct {
	input    workflows.PipelineInput
	pipeline string
	inputs   map[string]any
	// legs is how many stages the run has, each leg of a matrix counted.
	legs int
	// named says that the request id was given, so that it may have been seen
	// before.
	named bool
	// priority is 0 where none was given.
	priority int
	// keyed is nil for a pipeline without a key.
	keyed *keyed
}

// check refuses names that cannot be parts of an id.
func (r *request) check() error {
	for _, n := range [][2]string{{"--tenant", r.input.Tenant}, {"--project", r.input.Project}} {
		if !run.ValidScope(n[1]) {
			return usage("%s %q: want %s", n[0], n[1], run.ScopeWords)
		}
	}
	if r.named && (r.input.RequestID == "" || len(r.input.RequestID) > maxRequestID) {
		return usage("--request-id must have 1 to %d bytes", maxRequestID)
	}
	if r.input.RequestID == "" {
		r.input.RequestID = uuid.NewString()
	}
	r.input.Delivery = uuid.NewString()
	return nil
}

// start starts the run, or finds the one that stands for it.
func (r *request) start(ctx context.Context, c *runs.Client, t client.Client) (begun, error) {
	if r.keyed != nil {
		return r.startKeyed(ctx, c, t)
	}
	return r.startPlain(ctx, t)
}

// startPlain starts a run under its request id: the same request id always means
// the run that it began, in whatever state that is by now.
func (r *request) startPlain(ctx context.Context, t client.Client) (begun, error) {
	reuse := enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY
	if r.named {
		// A redelivered request never runs again, not even after a failure: a
		// retry that somebody means has a request id of its own.
		reuse = enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE
	}
	b, err := r.execute(ctx, t, run.ID(r.input.Tenant, r.input.Project, r.pipeline, r.input.RequestID), reuse)
	b.own = b.attached
	return b, err
}

// options are Temporal's for the start of a run. No execution timeout: Temporal
// would end the workflow without letting it clean up.
func (r *request) options(id string, reuse enumspb.WorkflowIdReusePolicy) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       id,
		TaskQueue:                run.QueueWorkflows,
		WorkflowTaskTimeout:      workflows.TaskTimeout(r.legs),
		WorkflowIDReusePolicy:    reuse,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		// Else the old run's handle comes back as if it were a new one.
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		Priority:                                 run.Priority(r.input.Tenant, r.priority),
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(workflows.AttrTenant).ValueSet(r.input.Tenant),
			temporal.NewSearchAttributeKeyKeyword(workflows.AttrProject).ValueSet(r.input.Project),
			temporal.NewSearchAttributeKeyKeyword(workflows.AttrPipeline).ValueSet(r.pipeline),
		),
		StaticSummary: r.summary(),
	}
}

// summary is the one line that Temporal's UI shows: the name and the inputs.
func (r *request) summary() string {
	s := r.pipeline
	if in := tree.InputWords(r.inputs); in != "" {
		s += " (" + in + ")"
	}
	if len(s) > maxSummary {
		s = strings.ToValidUTF8(s[:maxSummary], "") + "…"
	}
	return s
}
