package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"belay.run/internal/expr"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

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
	// open is how many legs run, limit how many may; first is the failure that
	// came first.
	open, limit int
	first       failure
	failFast    bool
}

// leg is one child workflow of a node.
type leg struct {
	doc    *run.Stage
	steps  []run.Step
	future workflow.ChildWorkflowFuture // nil unless it runs
	cancel workflow.CancelFunc
	// known: the ids of its workflow are in the document.
	known bool
	vars  run.Leg
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
	if m := st.Matrix; m != nil {
		combos, n.limit, n.failFast = m.Legs, m.MaxParallel, m.FailFast
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

// gate lets a stage run unless its own when says no.
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
	n.status = run.Running
}

// spoil fails a stage that cannot even begin.
func (p *pipeline) spoil(ctx workflow.Context, n *node, cause *run.Cause) {
	for _, l := range n.legs {
		l.doc.Status, l.doc.Cause = run.Failed, cause
	}
	n.first.note(run.Failed, cause)
	p.settle(ctx, n)
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
		Request: p.request(), Delivery: p.in.Delivery, Rerun: p.in.Rerun,
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
func (p *pipeline) settle(ctx workflow.Context, n *node) {
	n.status, n.cause = n.joint()
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
	case spec.Abort, spec.Rollback: // the stage has rolled itself back
		p.failed.note(n.status, n.cause)
		p.abort(ctx, n.cause)
	}
}

// joint is the state of a stage from those of its legs: the first failure in
// time, else a cancel from above, else success, skipped if all were.
func (n *node) joint() (run.Status, *run.Cause) {
	if n.first.status != "" {
		return n.first.status, n.first.cause
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
