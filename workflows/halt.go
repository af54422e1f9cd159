package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"belay.run/internal/run"
)

// halt is how a pipeline or a stage is stopped: once, by the first cause in
// time; what comes later changes nothing.
type halt struct {
	status run.Status // what the node will end as; "" while nothing stops it
	cause  *run.Cause
	cancel workflow.CancelFunc // ends what runs below
	at     time.Time           // when it was asked for
	now    func() time.Time    // the workflow's clock
}

// arm makes ready to stop what runs below ctx.
func (h *halt) arm(ctx workflow.Context, cancel workflow.CancelFunc) {
	h.cancel, h.now = cancel, func() time.Time { return workflow.Now(ctx) }
}

// on reports whether the node is being stopped.
func (h *halt) on() bool { return h.status != "" }

// stop records why the node stops and cancels what runs below it. It reports
// whether this call was the first.
func (h *halt) stop(status run.Status, cause *run.Cause) bool {
	if h.on() {
		return false
	}
	h.status, h.cause, h.at = status, cause, h.now()
	h.cancel()
	return true
}

// awaitHalt lets a cancel of ctx that has just come be noticed before the node
// goes on as if there were none: coroutines run one at a time.
func awaitHalt(ctx workflow.Context, h *halt) {
	if ctx.Err() == nil {
		return
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	if err := workflow.Await(d, h.on); err != nil {
		workflow.GetLogger(d).Warn("stopped waiting for the cancel to be noticed", "error", err)
	}
}

// failure remembers the first child that ended badly and counts, in time.
type failure struct {
	status run.Status
	cause  *run.Cause
}

func (f *failure) note(status run.Status, cause *run.Cause) {
	if f.status == "" {
		f.status, f.cause = status, cause
	}
}

// because is the cause of what is skipped since c happened before it.
func because(c *run.Cause) *run.Cause {
	out := &run.Cause{Trigger: run.TriggerDependencyFailed}
	if c != nil {
		out.Source, out.Message, out.By = c.Source, c.Message, c.By
	}
	return out
}
