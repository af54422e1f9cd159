package workflows_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/cancels"
	"belay.run/internal/dedup"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/workflows"
)

// world stands in for all that activities touch, and notes what was asked of it.
type world struct {
	plan *spec.Plan
	// steps says how a step ends, by name; others succeed.
	steps map[string]func(context.Context, activities.StepInput) (*activities.StepResult, error)
	// alive answers HostAlive; bindErr fails Bind.
	alive func() bool
	cause activities.CancelCause

	// claims are what claims come to, one after the other; then they are granted.
	claims []activities.ClaimResult

	mu    sync.Mutex
	did   []string
	input map[string]activities.StepInput
	most  int // steps that ran at once
	now   int
	// marked is what was written down as leaked.
	marked []resource.Entry
}

func (w *world) MarkLeaked(_ context.Context, in activities.MarkInput) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.marked = append(w.marked, in.Entries...)
	return nil
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = append(w.did, what)
}

// all is what was asked so far.
func (w *world) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.did...)
}

func (w *world) Plan(context.Context, activities.PlanInput) (*spec.Plan, error) { return w.plan, nil }

// CancelCause tells a stage, whose id is made of its pipeline's, that it was
// cancelled by that, as its history would.
func (w *world) CancelCause(_ context.Context, in activities.CauseInput) (*activities.CancelCause, error) {
	w.note("cause")
	cause := w.cause
	cause.FromParent = cause.FromParent || strings.Contains(in.WorkflowID, "/")
	return &cause, nil
}

func (w *world) TellHosts(_ context.Context, cancel cancels.Cancel) error {
	w.note("tell hosts " + string(cancel.Cause.Trigger))
	return nil
}

func (w *world) ClaimRun(_ context.Context, in activities.ClaimRunInput) (*activities.ClaimResult, error) {
	what := "claim " + in.Key.Name
	if in.Again {
		what += " again"
	}
	w.note(what)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.claims) > 0 {
		next := w.claims[0]
		w.claims = w.claims[1:]
		return &next, nil
	}
	return &activities.ClaimResult{Decision: dedup.Granted, Record: dedup.Record{Key: in.Key, Owner: in.Owner, Token: 1}}, nil
}

func (w *world) AwaitRun(context.Context, dedup.Owner) (*activities.RunEnd, error) {
	return nil, errors.New("nobody is to be waited for")
}

func (w *world) Supersede(context.Context, activities.SupersedeInput) (*activities.Superseded, error) {
	return nil, errors.New("nobody is to make way")
}

func (w *world) SettleRun(_ context.Context, in activities.SettleInput) (*activities.Settled, error) {
	w.note("settle " + in.Key.Name + " " + string(in.Result.Status))
	return &activities.Settled{}, nil
}

func (w *world) SettleStep(ctx context.Context, in activities.SettleInput) (*activities.Settled, error) {
	return w.SettleRun(ctx, in)
}

func (w *world) HostAlive(context.Context, string) (bool, error) {
	w.note("alive?")
	return w.alive(), nil
}

func (w *world) Bind(_ context.Context, o activities.Owner) (*activities.Binding, error) {
	w.note("bind " + o.Node)
	return &activities.Binding{Host: "h1", Queue: "belay-host/h1/b1"}, nil
}

func (w *world) Prepare(context.Context, activities.PrepareInput) error { return nil }

func (w *world) SaveArtifacts(_ context.Context, in activities.SaveInput) (string, error) {
	return "artifacts/" + in.Owner.Node, nil
}

func (w *world) Release(_ context.Context, o activities.Owner) error {
	w.note("release " + o.Node)
	return nil
}

func (w *world) End(_ context.Context, in activities.EndInput) error {
	for _, n := range in.Nodes {
		w.note("end " + n)
	}
	return nil
}

func (w *world) RunLight(context.Context, activities.LightInput) (*activities.StepResult, error) {
	return &activities.StepResult{Attempt: 1}, nil
}

func (w *world) RunStep(ctx context.Context, in activities.StepInput) (*activities.StepResult, error) {
	w.mu.Lock()
	w.did = append(w.did, "run "+in.Node)
	w.input[in.Node] = in
	w.now++
	w.most = max(w.most, w.now)
	w.mu.Unlock()
	defer func() { w.mu.Lock(); w.now--; w.mu.Unlock() }()
	if f := w.steps[in.Step.Name]; f != nil {
		return f(ctx, in)
	}
	return &activities.StepResult{Attempt: in.Attempts + int(activity.GetInfo(ctx).Attempt)}, nil
}

// exits ends a step with an exit code, retryable or not.
func exits(code int, retryable bool) func(context.Context, activities.StepInput) (*activities.StepResult, error) {
	return func(ctx context.Context, in activities.StepInput) (*activities.StepResult, error) {
		res := activities.StepResult{Attempt: in.Attempts + int(activity.GetInfo(ctx).Attempt), ExitCode: &code}
		return nil, temporal.NewApplicationErrorWithOptions("exit code", string(run.TriggerExitCode),
			temporal.ApplicationErrorOptions{NonRetryable: !retryable, Details: []any{res}})
	}
}

// writes ends a step well, with outputs.
func writes(outputs map[string]string) func(context.Context, activities.StepInput) (*activities.StepResult, error) {
	return func(context.Context, activities.StepInput) (*activities.StepResult, error) {
		return &activities.StepResult{Attempt: 1, Outputs: outputs}, nil
	}
}

// bench is one run of a pipeline in Temporal's test environment.
type bench struct {
	*testsuite.TestWorkflowEnvironment
	world *world
}

func setup(t *testing.T, plan *spec.Plan) *bench {
	t.Helper()
	return setupMeasured(t, plan, nil)
}

// setupMeasured is setup with somebody who hears what is measured.
func setupMeasured(t *testing.T, plan *spec.Plan, measured client.MetricsHandler) *bench {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetMetricsHandler(measured)
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	w := &world{
		plan: plan, input: map[string]activities.StepInput{},
		steps: map[string]func(context.Context, activities.StepInput) (*activities.StepResult, error){},
		alive: func() bool { return true },
		cause: activities.CancelCause{Cause: run.Cause{Trigger: run.TriggerUser, By: "ada@box", Message: "wrong tag"}},
	}
	env.RegisterActivity(w)
	env.RegisterWorkflowWithOptions(workflows.Pipeline, workflow.RegisterOptions{Name: workflows.PipelineWorkflow})
	env.RegisterWorkflowWithOptions(workflows.Stage, workflow.RegisterOptions{Name: workflows.StageWorkflow})
	return &bench{env, w}
}

// run runs the plan to its end and returns the run's document, wherever it is.
func (b *bench) run(t *testing.T) *run.Document {
	t.Helper()
	b.ExecuteWorkflow(workflows.Pipeline, workflows.PipelineInput{File: "x"})
	require.True(t, b.IsWorkflowCompleted(), "the pipeline did not end")
	return b.document(t)
}

func (b *bench) document(t *testing.T) *run.Document {
	t.Helper()
	var doc run.Document
	err := b.GetWorkflowError()
	var app *temporal.ApplicationError
	var canceled *temporal.CanceledError
	switch {
	case err == nil:
		require.NoError(t, b.GetWorkflowResult(&doc))
	case errors.As(err, &app):
		require.True(t, app.HasDetails(), "no document in %v", err)
		require.NoError(t, app.Details(&doc))
	case errors.As(err, &canceled):
		require.NoError(t, canceled.Details(&doc))
	default:
		require.NoError(t, err)
	}
	return &doc
}

// states are the states of the run's stages by node.
func states(doc *run.Document) map[string]run.Status {
	out := map[string]run.Status{}
	for _, s := range doc.Stages {
		out[s.Node] = s.Status
	}
	return out
}

var abort = spec.OnFailure{Timeout: spec.Abort, Error: spec.Abort, Lost: spec.Abort, Default: spec.Abort}

func on(a spec.Action) spec.OnFailure {
	return spec.OnFailure{Timeout: a, Error: a, Lost: a, Default: a}
}

// step is a run step with the defaults a parsed file has.
func step(name string, edit ...func(*spec.Step)) spec.Step {
	s := spec.Step{
		Name: name, Run: []spec.Command{{Script: ":"}}, Timeout: time.Hour, GracePeriod: 10 * time.Second,
		Retry: spec.Retry{MaxAttempts: 1}, OnFailure: abort,
	}
	for _, f := range edit {
		f(&s)
	}
	return s
}

func group(name string, edit func(*spec.Step), members ...spec.Step) spec.Step {
	return step(name, func(s *spec.Step) {
		s.Run, s.Parallel = nil, members
		if edit != nil {
			edit(s)
		}
	})
}

func stage(name string, steps []spec.Step, edit ...func(*spec.Stage)) spec.Stage {
	s := spec.Stage{
		Name: name, Steps: steps, Timeout: 6 * time.Hour, FinallyTimeout: 5 * time.Minute, OnFailure: abort,
		OnWorkerLost: spec.LostFail,
	}
	for _, f := range edit {
		f(&s)
	}
	return s
}

func needs(names ...string) func(*spec.Stage) { return func(s *spec.Stage) { s.Needs = names } }

func reads(names ...string) func(*spec.Stage) { return func(s *spec.Stage) { s.Reads = names } }

func plan(stages ...spec.Stage) *spec.Plan {
	return &spec.Plan{
		Name: "demo", Stages: stages, Timeout: 6 * time.Hour, FinallyTimeout: 5 * time.Minute, ReleaseTimeout: 2 * time.Minute,
	}
}

// anything and stepNamed match the arguments of activities.
var anything = mock.Anything

func stepNamed(name string) any {
	return mock.MatchedBy(func(in activities.StepInput) bool { return in.Step.Name == name })
}
