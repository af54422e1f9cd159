package workflows

import (
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/cancels"
	"belay.run/internal/run"
)

// heed stops the run when its workflow is cancelled. Temporal cancels the stages
// in the same moment; why, they are told as soon as it is known.
func (p *pipeline) heed(ctx workflow.Context) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		ctx.Done().Receive(ctx, nil)
		d, _ := workflow.NewDisconnectedContext(ctx)
		if !p.stop(d, run.Cancelled, &run.Cause{Trigger: run.TriggerUser}) {
			return
		}
		p.asking = true
		defer func() { p.asking = false }()
		var why activities.CancelCause
		var control *activities.Control
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(d, controlOptions()), control.CancelCause,
			activities.CauseInput{WorkflowID: p.doc.ID, RunID: p.doc.RunID, RunKey: p.doc.RunKey}).Get(d, &why)
		if err != nil {
			workflow.GetLogger(d).Warn("could not read why the run was cancelled", "error", err)
			why.Cause = *p.halt.cause
		}
		if p.halt.cause = &why.Cause; !why.At.IsZero() {
			p.halt.at = why.At
		}
		p.doc.Cause = p.halt.cause
		for _, n := range p.nodes {
			n.tell(d, p.halt.cause)
		}
	})
}

// stop stops the run, once, with everything below it. It reports whether this
// call was the one that did. A run that has failed and only runs its finally
// steps stays failed.
func (p *pipeline) stop(ctx workflow.Context, status run.Status, cause *run.Cause) bool {
	if p.halt.on() || (p.bodyOver && p.failed.status != "") {
		return false
	}
	p.doc.Status, p.doc.Cause = run.Cancelling, cause
	if status != run.Cancelled {
		for _, n := range p.nodes {
			n.tell(ctx, cause)
		}
		p.tellHosts(ctx, cause)
	}
	p.halt.stop(status, cause)
	p.describe(ctx)
	return true
}

// tellHosts has all hosts end what they run of the run's body, as a cancel does
// when its cause is read. Nobody waits for it: the stages end their own in any
// case.
func (p *pipeline) tellHosts(ctx workflow.Context, cause *run.Cause) {
	if workflow.GetVersion(ctx, "tell-hosts", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	opts := controlOptions()
	opts.RetryPolicy.MaximumAttempts = 1 // later it would tell nothing new
	var control *activities.Control
	// Scheduled here and not in a coroutine: were the cancel of a child the first
	// command after a version marker, the SDK would count the ids of those after
	// it otherwise in a replay.
	told := workflow.ExecuteActivity(workflow.WithActivityOptions(d, opts), control.TellHosts,
		cancels.Cancel{RunKey: p.doc.RunKey, Cause: *cause})
	workflow.Go(d, func(d workflow.Context) {
		if err := told.Get(d, nil); err != nil {
			workflow.GetLogger(d).Debug("the hosts hear of the end from the stages only", "error", err)
		}
	})
}

// abort is what a stage that failed under on_failure: abort does to the others:
// those that run are cancelled, those that have not started are skipped, save
// that those whose when reads a status decide for themselves.
func (p *pipeline) abort(ctx workflow.Context, cause *run.Cause) {
	if p.blocked != nil {
		return
	}
	p.blocked = cause
	for _, n := range p.nodes {
		if !n.readsStatus() {
			n.stop(ctx, cause)
		}
	}
}

// leaveOutFinally passes --now on: finally steps that have not run do not, those
// that run are ended.
func (p *pipeline) leaveOutFinally(ctx workflow.Context) {
	p.now = true
	for _, n := range p.nodes {
		n.signal(ctx, NowSignal, nil)
	}
	if p.last != nil {
		p.last.stop(ctx, cancelledFinally(run.FinallyStage))
	}
}
