package workflows

import (
	"go.temporal.io/sdk/workflow"

	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// runFinally runs the pipeline's finally steps as a stage of their own, out of
// reach of the cancel and of the timeout that may have ended the others. They
// are left out where somebody asked for --now, and where nothing ever ran.
func (p *pipeline) runFinally(ctx workflow.Context) {
	if len(p.plan.Finally) == 0 || p.now || !p.anyStarted() {
		return
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	n := newNode(&spec.Stage{
		Name: run.FinallyStage, Steps: p.plan.Finally, OnWorkerLost: spec.LostFail,
		Timeout: p.plan.FinallyTimeout, FinallyTimeout: p.plan.FinallyTimeout,
		OnFailure: spec.OnFailure{Timeout: spec.Abort, Error: spec.Abort, Lost: spec.Abort, Default: spec.Abort},
		Reads:     p.plan.FinallyReads,
	})
	n.after = map[string]bool{}
	for _, m := range p.nodes {
		n.after[m.spec.Name] = true
	}
	n.legs[0].doc.Finally = true
	p.last = n
	in := p.stageInput(n, p.scope(n))
	in.Finally = true
	p.runAlone(d, n, in)
	if n.status.Bad() && !n.stopped {
		p.failed.note(n.status, n.cause)
	}
}

func (p *pipeline) anyStarted() bool {
	for _, n := range p.nodes {
		for _, l := range n.legs {
			if l.doc.StartedAt != nil {
				return true
			}
		}
	}
	return false
}
