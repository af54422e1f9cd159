package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/run"
)

// causeSignal carries the cause of a cancel from a pipeline to its stages: the
// cancel itself carries none. Payload: run.Cause.
const causeSignal = "cause"

// listen takes what is asked of the stage while it runs: the cause of a cancel,
// leaving out finally, cancelling one step.
func (s *stage) listen(ctx workflow.Context) error {
	workflow.Go(ctx, func(ctx workflow.Context) {
		var cause run.Cause
		workflow.GetSignalChannel(ctx, causeSignal).Receive(ctx, &cause)
		s.learn(&cause)
	})
	workflow.Go(ctx, func(ctx workflow.Context) {
		workflow.GetSignalChannel(ctx, NowSignal).Receive(ctx, nil)
		s.now = true
		if s.endFinally != nil {
			s.endFinally()
			s.end(ctx, s.runningNodes(true), cancelledFinally(s.doc.Node))
		}
	})
	err := workflow.SetUpdateHandlerWithOptions(ctx, CancelNodeUpdate, s.cancelNode,
		workflow.UpdateHandlerOptions{Validator: s.mayCancel})
	if err != nil {
		return fmt.Errorf("setting the %s update: %w", CancelNodeUpdate, err)
	}
	return nil
}

func cancelledFinally(node string) *run.Cause {
	return &run.Cause{Trigger: run.TriggerUser, Source: node, Message: "cancelled with --now: finally was left out"}
}

// heed stops the stage when its workflow is cancelled, by the pipeline or by
// somebody directly. The steps are cancelled by Temporal in the same moment.
func (s *stage) heed(ctx workflow.Context) {
	info := workflow.GetInfo(ctx)
	workflow.Go(ctx, func(ctx workflow.Context) {
		ctx.Done().Receive(ctx, nil)
		d, _ := workflow.NewDisconnectedContext(ctx)
		cause := s.above
		if cause == nil {
			cause = &run.Cause{Trigger: run.TriggerUser, Source: s.doc.Node}
		}
		if !s.stop(d, run.Cancelled, cause) || s.above != nil {
			return
		}
		var why activities.CancelCause
		var control *activities.Control
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(d, controlOptions()), control.CancelCause,
			activities.CauseInput{WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID}).Get(d, &why)
		if err != nil {
			workflow.GetLogger(d).Warn("could not read why the stage was cancelled", "error", err)
			s.learn(cause)
		} else if !why.FromParent {
			why.Cause.Source = s.doc.Node
			s.learn(&why.Cause)
		}
	})
}

// learn takes the cause of a cancel from above, once.
func (s *stage) learn(cause *run.Cause) {
	if s.above != nil {
		return
	}
	s.above = cause
	if s.halt.status == run.Cancelled {
		s.halt.cause = cause
	}
}

// awaitCause waits, not long, until the cause of a cancel from above is known.
func (s *stage) awaitCause(ctx workflow.Context) {
	if s.halt.status != run.Cancelled || s.above != nil {
		return
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	if _, err := workflow.AwaitWithTimeout(d, causePatience, func() bool { return s.above != nil }); err != nil {
		workflow.GetLogger(d).Warn("stopped waiting for the cause of the cancel", "error", err)
	}
}

// stop stops the stage, once, and has its processes ended at once. It reports
// whether this call was the one that did. Finally steps go on: they have time of
// their own. A stage that has failed and only runs those stays failed.
func (s *stage) stop(ctx workflow.Context, status run.Status, cause *run.Cause) bool {
	if s.bodyOver && s.failed.status != "" {
		return false
	}
	nodes := s.runningNodes(false)
	if !s.halt.stop(status, cause) {
		return false
	}
	s.doc.Status, s.doc.Cause = run.Cancelling, cause
	s.describe(ctx)
	s.end(ctx, nodes, cause)
	return true
}

// runningNodes are the steps whose activities are under way, in file order:
// the ordinary ones, or those that follow them.
func (s *stage) runningNodes(following bool) []string {
	var nodes []string
	for i := range s.doc.Steps {
		st := &s.doc.Steps[i]
		if _, ok := s.cancels[st.Node]; ok && s.follows(st) == following {
			nodes = append(nodes, st.Node)
			st.Status = run.Cancelling
		}
	}
	if s.taking && following == (s.endFinally != nil) {
		nodes = append(nodes, s.doc.Node) // which acquires what the stage is to hold
	}
	return nodes
}

// end has the host end the processes of nodes at once. The cancel of their
// activities would reach them with a heartbeat, seconds later, or by a push that
// not every server has; this takes some tens of milliseconds on any.
func (s *stage) end(ctx workflow.Context, nodes []string, cause *run.Cause) {
	if s.host == nil || len(nodes) == 0 {
		return
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	host := s.host
	s.ending++
	workflow.Go(d, func(d workflow.Context) {
		defer func() { s.ending-- }()
		var steps *activities.Steps
		opts := endOptions(host.Queue, s.in.ReleaseTimeout)
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(d, opts), steps.End,
			activities.EndInput{Owner: s.owner, Nodes: nodes, Cause: *cause}).Get(d, nil)
		if err != nil {
			workflow.GetLogger(d).Warn("could not end the processes at once; their cancel will", "error", err)
		}
	})
}

// mayCancel refuses the cancel of a step that is not there or has ended.
func (s *stage) mayCancel(req CancelNode) error {
	for i := range s.doc.Steps {
		if st := &s.doc.Steps[i]; st.Node == req.Node {
			if st.Status.Terminal() {
				return fmt.Errorf("step %s has already ended: %s", req.Node, st.Status)
			}
			return nil
		}
	}
	return fmt.Errorf("stage %s has no step %q", s.doc.Node, req.Node)
}

// cancelNode cancels one step. One that runs is ended; one that has not started
// never will.
func (s *stage) cancelNode(ctx workflow.Context, req CancelNode) error {
	cause := &run.Cause{Trigger: run.TriggerUser, Source: req.Node, Message: req.Reason, By: req.By}
	s.nodeAsk[req.Node] = cause
	if cancel, ok := s.cancels[req.Node]; ok {
		cancel()
		s.end(ctx, []string{req.Node}, cause)
	}
	return nil
}
