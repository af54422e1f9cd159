package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"belay.run/internal/expr"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// maxChildren bounds the stages of one run that are open at once.
const maxChildren = 500

// node is a stage of the run with its legs; one without a matrix has one leg.
type node struct {
	spec   *spec.Stage
	legs   []*leg
	status run.Status
	cause  *run.Cause
	// after are the stages that it needs, directly or not.
	after map[string]bool
	// stopped: told to stop from above, so that its end counts for nothing.
	stopped bool
}

// leg is one child workflow of a node.
type leg struct {
	doc    *run.Stage
	steps  []run.Step
	future workflow.ChildWorkflowFuture // nil unless it runs
	cancel workflow.CancelFunc
	vars   run.Leg
	// stopped: by fail_fast of the matrix.
	stopped bool
}

// layOut makes a node of every stage, all pending.
func (p *pipeline) layOut() {
	for i := range p.plan.Stages {
		n := newNode(&p.plan.Stages[i])
		p.nodes = append(p.nodes, n)
		p.byName[n.spec.Name] = n
		n.after = map[string]bool{}
	}
	for _, n := range p.nodes {
		p.collect(n.spec, n.after)
	}
}

func newNode(st *spec.Stage) *node {
	n := &node{spec: st, status: run.Pending}
	combos := []run.Leg{nil}
	if st.Matrix != nil {
		combos = st.Matrix.Legs
	}
	for _, vars := range combos {
		n.legs = append(n.legs, &leg{vars: vars, doc: &run.Stage{
			Name: st.Name, Leg: vars, Node: run.StageNode(st.Name, vars), Status: run.Pending,
		}})
	}
	return n
}

// collect gathers all that a stage needs, directly or not.
func (p *pipeline) collect(st *spec.Stage, into map[string]bool) {
	for _, name := range st.Needs {
		if !into[name] {
			into[name] = true
			p.collect(p.byName[name].spec, into)
		}
	}
}

func (n *node) readsStatus() bool { return n.spec.When != nil && n.spec.When.ReadsStatus }

// runNode waits until a stage may run, runs it, and lets its end count.
func (p *pipeline) runNode(ctx workflow.Context, n *node) {
	err := workflow.Await(ctx, func() bool {
		return p.halt.on() || (p.blocked != nil && !n.readsStatus()) || p.needsSettled(n)
	})
	switch {
	case err != nil || p.halt.on():
		n.skip(because(p.halt.cause))
	case p.blocked != nil && !n.readsStatus():
		n.skip(because(p.blocked))
	case !n.readsStatus() && p.unmet(n) != nil:
		n.skip(because(p.unmet(n)))
	default:
		p.gate(ctx, n)
	}
	p.describe(ctx)
}

// gate runs a stage unless its own when says no.
func (p *pipeline) gate(ctx workflow.Context, n *node) {
	if n.spec.When != nil {
		ok, err := expr.Bool(n.spec.When.Expr, p.scope(n))
		if err != nil {
			p.spoil(ctx, n, &run.Cause{Trigger: run.TriggerInvalid, Source: n.spec.Name, Message: fmt.Sprintf("when: %v", err)})
			return
		}
		if !ok {
			n.skip(nil)
			return
		}
	}
	p.runLegs(ctx, n)
}

// spoil fails a stage that cannot even begin.
func (p *pipeline) spoil(ctx workflow.Context, n *node, cause *run.Cause) {
	for _, l := range n.legs {
		l.doc.Status, l.doc.Cause = run.Failed, cause
	}
	p.settle(ctx, n, failure{status: run.Failed, cause: cause})
}

func (p *pipeline) needsSettled(n *node) bool {
	for _, name := range n.spec.Needs {
		if !p.byName[name].status.Terminal() {
			return false
		}
	}
	return true
}

// unmet is the cause for which a stage's needs are not met, nil where they are.
// A stage that was skipped by its own when, or whose failure is ignored, does
// not stand in the way.
func (p *pipeline) unmet(n *node) *run.Cause {
	for _, name := range n.spec.Needs {
		need := p.byName[name]
		switch {
		case need.status.OK(), need.status == run.Skipped && need.cause == nil:
		case need.status.Bad() && ignores(need):
		case need.cause != nil:
			return need.cause
		default:
			return &run.Cause{Trigger: run.TriggerDependencyFailed, Source: name}
		}
	}
	return nil
}

func ignores(n *node) bool {
	return n.cause != nil && n.spec.OnFailure.For(n.cause.Trigger) == spec.Ignore
}

// skip marks a stage as skipped for cause; nil means by its own when.
func (n *node) skip(cause *run.Cause) {
	n.status, n.cause = run.Skipped, cause
	for _, l := range n.legs {
		if !l.doc.Status.Terminal() {
			l.doc.Status, l.doc.Cause = run.Skipped, cause
		}
	}
}

// runLegs runs the legs of a stage, as many at once as it allows.
func (p *pipeline) runLegs(ctx workflow.Context, n *node) {
	n.status = run.Running
	limit := len(n.legs)
	failFast := false
	if m := n.spec.Matrix; m != nil {
		failFast = m.FailFast
		if m.MaxParallel > 0 {
			limit = min(limit, m.MaxParallel)
		}
	}
	slots := workflow.NewSemaphore(ctx, int64(limit))
	wg := workflow.NewWaitGroup(ctx)
	var first failure
	for _, l := range n.legs {
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			p.runLeg(ctx, n, l, slots)
			if !l.doc.Status.Bad() || l.stopped || n.stopped || p.halt.on() {
				return
			}
			first.note(l.doc.Status, l.doc.Cause)
			if failFast {
				n.stopLegs(ctx, l.doc.Cause)
			}
		})
	}
	wg.Wait(ctx)
	p.settle(ctx, n, first)
}

// runLeg runs one leg as a child workflow, unless it was stopped in the meantime.
func (p *pipeline) runLeg(ctx workflow.Context, n *node, l *leg, slots workflow.Semaphore) {
	if err := slots.Acquire(ctx, 1); err == nil {
		defer slots.Release(1)
	}
	if err := p.children.Acquire(ctx, 1); err == nil {
		defer p.children.Release(1)
	}
	if l.halted(ctx, n) {
		l.doc.Status, l.doc.Cause = run.Skipped, because(p.whyStopped(n))
		return
	}
	in := p.stageInput(n, p.scope(n))
	in.Leg = l.vars
	p.child(ctx, l, in)
}

func (l *leg) halted(ctx workflow.Context, n *node) bool {
	return ctx.Err() != nil || l.stopped || n.stopped
}

// whyStopped is the cause for which legs of n that have not started do not.
func (p *pipeline) whyStopped(n *node) *run.Cause {
	if p.halt.on() {
		return p.halt.cause
	}
	if n.cause != nil {
		return n.cause
	}
	return p.blocked
}

// child starts a leg's workflow and waits for its end.
func (p *pipeline) child(ctx workflow.Context, l *leg, in StageInput) {
	childCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	summary := p.doc.Pipeline + " / " + l.doc.Node
	opts := stageOptions(&in, l.doc.Node, summary)
	l.cancel = cancel
	now := workflow.Now(ctx)
	l.doc.Status, l.doc.StartedAt = run.Running, &now
	l.future = workflow.ExecuteChildWorkflow(workflow.WithChildOptions(childCtx, opts), StageWorkflow, in)
	p.describe(ctx)
	var started workflow.Execution
	var res run.Stage
	err := l.future.GetChildWorkflowExecution().Get(ctx, &started)
	l.doc.WorkflowID, l.doc.RunID = started.ID, started.RunID
	if err == nil {
		err = l.future.Get(ctx, &res)
	}
	l.future = nil
	l.steps = readStage(l.doc, &res, err)
	p.limitOutputs(l)
	end := workflow.Now(ctx)
	l.doc.EndedAt = &end
	if l.doc.Status == run.Cancelled && l.doc.Cause == nil {
		l.doc.Cause = p.halt.cause
	}
}

// limitOutputs fails a stage with which the outputs of the run become more than
// later stages can be handed.
func (p *pipeline) limitOutputs(l *leg) {
	for i := range l.steps {
		p.outputBytes += size(l.steps[i].Outputs)
	}
	if l.doc.Status == run.Succeeded && p.outputBytes > maxRunOutputs {
		l.doc.Status = run.Failed
		l.doc.Cause = &run.Cause{
			Trigger: run.TriggerLimitExceeded, Source: l.doc.Node,
			Message: fmt.Sprintf("the outputs of the run come to %d bytes; a run may hand over %d", p.outputBytes, maxRunOutputs),
		}
	}
}

// stageInput is what a stage needs to know of the run.
func (p *pipeline) stageInput(n *node, scope expr.Scope) StageInput {
	in := StageInput{
		RunKey: p.doc.RunKey, RunID: p.doc.RunID, ID: p.doc.ID, Tenant: p.doc.Tenant, Project: p.doc.Project,
		Pipeline: p.doc.Pipeline, Stage: *n.spec, SourceRef: p.in.SourceRef, Source: p.plan.Source,
		Env: p.env, Scope: scope, ReleaseTimeout: p.plan.ReleaseTimeout,
		Request: p.request(), Delivery: p.in.Delivery,
	}
	in.Stage.Matrix, in.Stage.When, in.Stage.Needs = nil, nil, nil
	for _, m := range p.nodes {
		if !n.after[m.spec.Name] {
			continue
		}
		for _, l := range m.legs {
			if l.doc.Artifacts != "" {
				in.Artifacts = append(in.Artifacts, l.doc.Artifacts)
			}
		}
	}
	return in
}

// settle gives a stage its state from its legs, and lets a failure count in the
// run as the stage's on_failure says.
func (p *pipeline) settle(ctx workflow.Context, n *node, first failure) {
	n.status, n.cause = n.joint(first)
	if !n.status.Bad() || n.stopped || p.halt.on() {
		return
	}
	action := spec.Abort
	if n.cause != nil {
		action = n.spec.OnFailure.For(n.cause.Trigger)
	}
	switch action {
	case spec.Ignore:
	case spec.Continue:
		p.failed.note(n.status, n.cause)
	case spec.Abort:
		p.failed.note(n.status, n.cause)
		p.abort(ctx, n.cause)
	}
}

// joint is the state of a stage from those of its legs: the first failure in
// time, else a cancel from above, else success, skipped if all were.
func (n *node) joint(first failure) (run.Status, *run.Cause) {
	if first.status != "" {
		return first.status, first.cause
	}
	skipped := 0
	var why *run.Cause
	for _, l := range n.legs {
		switch {
		case l.doc.Status.Bad():
			return l.doc.Status, l.doc.Cause
		case l.doc.Status == run.Skipped:
			skipped++
			why = l.doc.Cause
		}
	}
	if skipped == len(n.legs) {
		return run.Skipped, why
	}
	return run.Succeeded, nil
}
