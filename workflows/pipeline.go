package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/expr"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/tracing"
)

// pipeline is the state of one run.
type pipeline struct {
	in     PipelineInput
	doc    run.Document
	plan   *spec.Plan
	env    map[string]string
	nodes  []*node // the stages, in file order
	byName map[string]*node
	last   *node // the stage that runs the pipeline's finally steps
	halt   halt
	failed failure
	// blocked is the failure after which stages that read no status are
	// skipped.
	blocked *run.Cause
	// open is how many stages run.
	open  int
	slot  *slot // in the pipeline's concurrency group
	quota *slot // among the runs of its tenant
	mail  *mailbox
	claim *claim // of the pipeline's key
	// remains is what stages could not give back.
	remains remains
	// outputBytes is the size of all outputs so far.
	outputBytes int
	now         bool // leave out finally
	bodyOver    bool // only finally is left
	asking      bool // why the run was cancelled is being read
}

// Pipeline runs a pipeline file: it freezes the file into a plan, runs its
// stages as child workflows, as much at once as their needs allow, then its
// finally steps. It returns the run's document without steps, as a result or in
// the details of the error.
func Pipeline(ctx workflow.Context, in PipelineInput) (*run.Document, error) {
	p, err := newPipeline(ctx, in)
	if err != nil {
		return nil, err
	}
	if err := p.freeze(ctx); err != nil {
		p.failed.note(run.Failed, err)
		return p.close(ctx)
	}
	p.body(ctx)
	p.runFinally(ctx)
	p.settleRemains(ctx)
	p.leave(ctx, p.slot)
	p.leave(ctx, p.quota)
	return p.close(ctx)
}

func newPipeline(ctx workflow.Context, in PipelineInput) (*pipeline, error) {
	in.Tenant, in.Project = cmp.Or(in.Tenant, run.DefaultTenant), cmp.Or(in.Project, run.DefaultProject)
	info := workflow.GetInfo(ctx)
	now := workflow.Now(ctx)
	p := &pipeline{
		in: in, byName: map[string]*node{},
		doc: run.Document{
			ID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID,
			RunKey: cmp.Or(info.FirstRunID, info.WorkflowExecution.RunID),
			Tenant: in.Tenant, Project: in.Project, Status: run.Running, StartedAt: &now,
		},
	}
	p.trace(ctx)
	err := workflow.SetQueryHandler(ctx, StatusQuery, func() (*run.Document, error) { return p.document(), nil })
	if err != nil {
		return nil, fmt.Errorf("setting the status query: %w", err)
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		workflow.GetSignalChannel(ctx, NowSignal).Receive(ctx, nil)
		p.leaveOutFinally(ctx)
	})
	return p, nil
}

// trace says in the run's trace for whom it runs.
func (p *pipeline) trace(ctx workflow.Context) {
	tracing.Tell(ctx, strings.TrimSpace("run "+p.doc.Pipeline), &tracing.Scope{
		Tenant: p.doc.Tenant, Project: p.doc.Project, Pipeline: p.doc.Pipeline, Run: p.doc.RunKey,
	})
}

// freeze has the file made into the run's plan.
func (p *pipeline) freeze(ctx workflow.Context) *run.Cause {
	var control *activities.Control
	opts := controlOptions()
	opts.Summary = "reads the pipeline file"
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), control.Plan, activities.PlanInput{
		File: p.in.File, Tenant: p.doc.Tenant, Path: p.in.Path, Inputs: p.in.Inputs, SourceRef: p.in.SourceRef,
	}).Get(ctx, &p.plan)
	if err != nil {
		if _, cancelled := errors.AsType[*temporal.CanceledError](err); cancelled {
			p.plan = &spec.Plan{}
			return nil // body hears of the cancel itself
		}
		return readOutcome("", nil, err).cause
	}
	p.doc.Pipeline, p.doc.Inputs = p.plan.Name, p.plan.Inputs
	p.trace(ctx)
	p.layOut()
	if p.env, err = evaluate(p.plan.Env, p.scope(nil)); err != nil {
		return &run.Cause{Trigger: run.TriggerInvalid, Message: err.Error()}
	}
	if err := p.newClaim(ctx); err != nil {
		return &run.Cause{Trigger: run.TriggerInvalid, Message: err.Error()}
	}
	return p.register(ctx)
}

// register makes the run findable by who it belongs to and what it runs.
func (p *pipeline) register(ctx workflow.Context) *run.Cause {
	attributes := []temporal.SearchAttributeUpdate{
		temporal.NewSearchAttributeKeyKeyword(AttrTenant).ValueSet(p.doc.Tenant),
		temporal.NewSearchAttributeKeyKeyword(AttrProject).ValueSet(p.doc.Project),
		temporal.NewSearchAttributeKeyKeyword(AttrPipeline).ValueSet(p.doc.Pipeline),
		temporal.NewSearchAttributeKeyKeyword(AttrStatus).ValueSet(string(p.doc.Status)),
	}
	if p.claim != nil {
		attributes = append(attributes, temporal.NewSearchAttributeKeyKeyword(AttrDedupKey).ValueSet(run.ShortKey(p.doc.DedupKey)))
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, attributes...); err != nil {
		return &run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: fmt.Sprintf("setting search attributes: %v", err)}
	}
	p.describe(ctx)
	return nil
}

// body runs the stages: everything of a run that a cancel or its timeout ends.
func (p *pipeline) body(ctx workflow.Context) {
	work, cancel := workflow.WithCancel(ctx)
	defer cancel()
	p.halt.arm(ctx, cancel)
	p.heed(ctx)
	p.takeClaim(work)
	p.takeQuota(work)
	p.takeSlot(work)
	p.startClock(work)
	p.runStages(work)
	awaitHalt(ctx, &p.halt)
	p.bodyOver = true
}

// startClock stops the run when the pipeline's timeout is over.
func (p *pipeline) startClock(ctx workflow.Context) {
	if p.plan.Timeout == 0 {
		return
	}
	timer := workflow.NewTimerWithOptions(ctx, p.plan.Timeout, workflow.TimerOptions{Summary: activities.PipelineClock})
	workflow.Go(ctx, func(ctx workflow.Context) {
		if timer.Get(ctx, nil) == nil {
			p.stop(ctx, run.TimedOut, &run.Cause{
				Trigger: run.TriggerPipelineTimeout,
				Message: fmt.Sprintf("the pipeline's timeout of %s is over", p.plan.Timeout),
			})
		}
	})
}

// close settles the run's state: what stopped it, else what failed in it.
func (p *pipeline) close(ctx workflow.Context) (*run.Document, error) {
	d, _ := workflow.NewDisconnectedContext(ctx)
	if err := workflow.Await(d, func() bool { return !p.asking }); err != nil {
		workflow.GetLogger(d).Warn("stopped waiting for the cause of the cancel", "error", err)
	}
	p.doc.Status, p.doc.Cause = run.Succeeded, nil
	switch {
	case p.halt.on():
		p.doc.Status, p.doc.Cause = p.halt.status, p.halt.cause
	case p.failed.status != "":
		p.doc.Status, p.doc.Cause = p.failed.status, p.failed.cause
	}
	p.settleClaim(d)
	if p.doc.DuplicateOf != "" {
		tracing.Note(ctx, tracing.AttrDuplicateOf, p.doc.DuplicateOf)
	}
	now := workflow.Now(ctx)
	p.doc.EndedAt = &now
	p.describe(ctx)
	publish(ctx, p.doc.Status)
	doc := p.document()
	p.measure(ctx, doc)
	if doc.Status == run.Duplicate {
		if err := p.claim.closeDuplicate(doc); err != nil {
			return nil, err
		}
		return doc, nil
	}
	if err := closeAs(doc.Status, doc.Cause, *doc); err != nil {
		return nil, err
	}
	return doc, nil
}

// document is the run as it is now.
func (p *pipeline) document() *run.Document {
	doc := p.doc
	doc.Stages = nil
	nodes := p.nodes
	if p.last != nil {
		nodes = append(slices.Clip(nodes), p.last)
	}
	for _, n := range nodes {
		for _, l := range n.legs {
			doc.Stages = append(doc.Stages, *l.doc)
		}
	}
	return &doc
}

// scope is what expressions of the pipeline and of stage n may read.
func (p *pipeline) scope(n *node) expr.Scope {
	scope := expr.Scope{
		"inputs": p.plan.Inputs, "env": texts(p.env), "tenant": p.doc.Tenant, "project": p.doc.Project,
		"pipeline": map[string]any{"name": p.doc.Pipeline, "status": string(p.statusSoFar())},
		"run": map[string]any{
			"id": p.doc.ID, "key": p.doc.RunKey, "attempt": 1,
			"scheduled_at": cmp.Or(p.in.RequestedAt, *p.doc.StartedAt).UTC().Format(time.RFC3339),
		},
	}
	if n == nil {
		return scope
	}
	stages := map[string]any{}
	for _, name := range n.spec.Reads {
		stages[name] = stageScope(p.byName[name])
	}
	scope["stages"] = stages
	return scope
}

// statusSoFar is how the run would end now.
func (p *pipeline) statusSoFar() run.Status {
	switch {
	case p.halt.on():
		return p.halt.status
	case p.failed.status != "":
		return p.failed.status
	case p.bodyOver:
		return run.Succeeded
	}
	return run.Running
}
