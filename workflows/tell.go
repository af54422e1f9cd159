package workflows

import (
	"go.temporal.io/sdk/workflow"

	"belay.run/internal/run"
)

// stop cancels what runs of a stage, for cause, and keeps the rest from
// starting.
func (n *node) stop(ctx workflow.Context, cause *run.Cause) {
	if n.status.Terminal() || n.stopped {
		return
	}
	n.stopped, n.cause = true, cause
	n.stopLegs(ctx, cause)
}

// stopLegs cancels the legs that run, and keeps the others from starting.
func (n *node) stopLegs(ctx workflow.Context, cause *run.Cause) {
	if n.cause == nil {
		n.cause = cause
	}
	n.tell(ctx, cause)
	for _, l := range n.legs {
		l.stopped = true
		if l.future != nil {
			l.doc.Status = run.Cancelling
			l.cancel()
		}
	}
}

// tell hands the legs that run the cause of the cancel that reaches them: the
// cancel itself carries none.
func (n *node) tell(ctx workflow.Context, cause *run.Cause) {
	n.signal(ctx, causeSignal, cause)
}

// signal sends the legs that run a signal. One that has just closed does not
// get it, and needs it no more.
func (n *node) signal(ctx workflow.Context, name string, arg any) {
	for _, l := range n.legs {
		if l.future == nil {
			continue
		}
		future := l.future
		d, _ := workflow.NewDisconnectedContext(ctx)
		workflow.Go(d, func(d workflow.Context) {
			if err := future.SignalChildWorkflow(d, name, arg).Get(d, nil); err != nil {
				workflow.GetLogger(d).Debug("a stage closed before a signal reached it", "signal", name, "error", err)
			}
		})
	}
}
