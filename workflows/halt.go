package workflows

import (
	"go.temporal.io/sdk/workflow"

	"belay.run/internal/run"
)

// halt is how a pipeline or a stage is stopped: once, by the first cause in
// time; what comes later changes nothing.
type halt struct {
	status run.Status // what the node will end as; "" while nothing stops it
	cause  *run.Cause
	cancel workflow.CancelFunc // ends what runs below
}

// on reports whether the node is being stopped.
func (h *halt) on() bool { return h.status != "" }

// stop records why the node stops and cancels what runs below it. It reports
// whether this call was the first.
func (h *halt) stop(status run.Status, cause *run.Cause) bool {
	if h.on() {
		return false
	}
	h.status, h.cause = status, cause
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
