package workflows

import (
	"go.temporal.io/sdk/workflow"

	"belay.run/internal/run"
)

// maxChildren bounds the stages of one run that are open at once.
const maxChildren = 300

// runStages runs the stages, each as soon as it may, and returns when all have
// ended. It is one loop in one coroutine: if each stage had one, every event of
// a run of hundreds would wake all of them.
func (p *pipeline) runStages(ctx workflow.Context) {
	d, _ := workflow.NewDisconnectedContext(ctx) // stages that are cancelled have their end too
	for {
		awaitHalt(ctx, &p.halt)
		for p.advance(ctx) {
		}
		p.describe(ctx)
		if p.allEnded() {
			return
		}
		if err := workflow.Await(d, func() bool { return p.moves(ctx) }); err != nil {
			workflow.GetLogger(d).Warn("stopped waiting for the stages", "error", err)
			return
		}
	}
}

func (p *pipeline) allEnded() bool {
	for _, n := range p.nodes {
		if !n.status.Terminal() {
			return false
		}
	}
	return true
}

// moves reports whether there is something to do, and does nothing.
func (p *pipeline) moves(ctx workflow.Context) bool {
	for _, n := range p.nodes {
		switch n.status { //nolint:exhaustive // a node has no other states before its end
		case run.Pending:
			if p.decided(ctx, n) {
				return true
			}
		case run.Running:
			for _, l := range n.legs {
				if p.legMoves(ctx, n, l) {
					return true
				}
			}
		}
	}
	return false
}

// advance does once what there is to do for each stage, and reports whether it
// did anything.
func (p *pipeline) advance(ctx workflow.Context) (moved bool) {
	for _, n := range p.nodes {
		switch {
		case n.status == run.Pending && p.decided(ctx, n):
			p.decide(ctx, n)
			moved = true
		case n.status == run.Running:
			moved = p.advanceLegs(ctx, n) || moved
		}
	}
	return moved
}

// decided reports whether it is known by now if a stage runs.
func (p *pipeline) decided(ctx workflow.Context, n *node) bool {
	return ctx.Err() != nil || p.halt.on() || (p.blocked != nil && !n.readsStatus()) || p.needsSettled(n)
}

// decide lets a stage run or skips it.
func (p *pipeline) decide(ctx workflow.Context, n *node) {
	switch {
	case ctx.Err() != nil || p.halt.on():
		n.skip(because(p.halt.cause))
	case p.blocked != nil && !n.readsStatus():
		n.skip(because(p.blocked))
	case !n.readsStatus() && p.unmet(n) != nil:
		n.skip(because(p.unmet(n)))
	default:
		p.gate(ctx, n)
	}
}

// advanceLegs starts the legs of a stage that may start, hears of those that have
// ended, and settles the stage with the last.
func (p *pipeline) advanceLegs(ctx workflow.Context, n *node) (moved bool) {
	left := 0
	for _, l := range n.legs {
		if p.legMoves(ctx, n, l) {
			p.advanceLeg(ctx, n, l)
			moved = true
		}
		if !l.doc.Status.Terminal() {
			left++
		}
	}
	if left == 0 {
		p.settle(ctx, n)
		moved = true
	}
	return moved
}

func (p *pipeline) legMoves(ctx workflow.Context, n *node, l *leg) bool {
	switch {
	case l.doc.Status.Terminal():
		return false
	case l.future != nil:
		return l.future.IsReady() || (!l.known && l.future.GetChildWorkflowExecution().IsReady())
	}
	return l.halted(ctx, n) || p.room(n)
}

func (p *pipeline) advanceLeg(ctx workflow.Context, n *node, l *leg) {
	switch {
	case l.future != nil:
		p.hear(ctx, n, l)
	case l.halted(ctx, n):
		l.doc.Status, l.doc.Cause = run.Skipped, because(p.whyStopped(n))
	default:
		in := p.stageInput(n, p.scope(n))
		in.Leg = l.vars
		p.startLeg(ctx, n, l, in)
	}
}

func (l *leg) halted(ctx workflow.Context, n *node) bool {
	return ctx.Err() != nil || l.stopped || n.stopped
}

// room reports whether another leg of a stage may start.
func (p *pipeline) room(n *node) bool {
	return p.open < maxChildren && (n.limit == 0 || n.open < n.limit)
}

// startLeg starts a leg's workflow.
func (p *pipeline) startLeg(ctx workflow.Context, n *node, l *leg, in StageInput) {
	ctx, l.cancel = workflow.WithCancel(ctx)
	opts := stageOptions(&in, l.doc.Node, p.doc.Pipeline+" / "+l.doc.Node)
	now := workflow.Now(ctx)
	l.doc.Status, l.doc.StartedAt = run.Running, &now
	l.future = workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, opts), StageWorkflow, in)
	n.open++
	p.open++
}

// hear takes what is known of a leg that runs: its ids, and its end.
func (p *pipeline) hear(ctx workflow.Context, n *node, l *leg) {
	var err error
	if started := l.future.GetChildWorkflowExecution(); !l.known && started.IsReady() {
		var execution workflow.Execution
		err = started.Get(ctx, &execution)
		l.doc.WorkflowID, l.doc.RunID, l.known = execution.ID, execution.RunID, true
	}
	if err == nil && !l.future.IsReady() {
		return
	}
	var res run.Stage
	if err == nil {
		err = l.future.Get(ctx, &res)
	}
	p.endLeg(ctx, n, l, &res, err)
}

// endLeg writes how a leg ended into its document, and lets a failure count in
// its stage.
func (p *pipeline) endLeg(ctx workflow.Context, n *node, l *leg, res *run.Stage, err error) {
	l.cancel() // nothing is left to be cancelled
	l.future = nil
	n.open--
	p.open--
	l.steps = readStage(l.doc, res, err)
	p.takeUp(ctx, l, err)
	p.limitOutputs(l)
	end := workflow.Now(ctx)
	l.doc.EndedAt = &end
	if l.doc.Status == run.Cancelled && l.doc.Cause == nil {
		l.doc.Cause = p.halt.cause
	}
	if !l.doc.Status.Bad() || l.stopped || n.stopped || p.halt.on() {
		return
	}
	n.first.note(l.doc.Status, l.doc.Cause)
	if n.failFast {
		n.stopLegs(ctx, l.doc.Cause)
	}
}

// runAlone runs a stage of one leg to its end.
func (p *pipeline) runAlone(ctx workflow.Context, n *node, in StageInput) {
	l := n.legs[0]
	p.startLeg(ctx, n, l, in)
	p.describe(ctx)
	for !l.doc.Status.Terminal() {
		if err := workflow.Await(ctx, func() bool { return p.legMoves(ctx, n, l) }); err != nil {
			workflow.GetLogger(ctx).Warn("stopped waiting for a stage", "stage", l.doc.Node, "error", err)
			return
		}
		p.hear(ctx, n, l)
	}
	n.status, n.cause = l.doc.Status, l.doc.Cause
}
