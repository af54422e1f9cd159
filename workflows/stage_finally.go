package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// runFinally runs the stage's finally steps, however the others ended.
func (s *stage) runFinally(ctx workflow.Context) {
	before := s.failed
	s.follow(ctx, s.spec.Finally, "finally")
	if before.status == "" && s.failed.status != "" {
		s.doc.Notes = append(s.doc.Notes, "the stage failed in its finally steps")
	}
}

// follow runs steps that come after the others, each whatever fails before it,
// in time of their own that no cancel takes from them. They are left out where
// somebody asked for --now, and where the stage was stopped before it had a host, its
// slot in a concurrency group, or what it is to hold over all its steps.
func (s *stage) follow(ctx workflow.Context, steps []spec.Step, what string) {
	if len(steps) == 0 || s.now || s.keptOut || len(s.spec.Resources) > 0 && !s.everHeld {
		return
	}
	if s.needsHost() && s.host == nil {
		if s.moved {
			s.doc.Notes = append(s.doc.Notes, fmt.Sprintf("the %s steps did not run: no host could be had for them either", what))
		}
		return
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	fctx, cancel := workflow.WithCancel(d)
	defer cancel()
	s.endFinally = cancel
	defer func() { s.endFinally = nil }()
	if !s.inPlace(fctx, what) || !s.holdsAgain(fctx, what) {
		return
	}
	s.sequence(fctx, steps, true)
	s.awaitLoss(fctx)
	if s.hostLost {
		s.failed.note(run.Failed, &run.Cause{Trigger: run.TriggerWorkerLost, Source: s.doc.Node, Message: activities.ErrLost.Error()})
	}
}

// inPlace makes ready for the steps that follow, on another host where the stage's
// own is lost, and starts their clock: the move does not count.
func (s *stage) inPlace(ctx workflow.Context, what string) bool {
	lost := s.hostLost
	if lost && workflow.GetVersion(ctx, "clock-finally-after-move", workflow.DefaultVersion, 1) != workflow.DefaultVersion {
		move, cancel := workflow.WithCancel(ctx)
		defer cancel()
		within := s.spec.FinallyTimeout + moveWithin
		timer := workflow.NewTimerWithOptions(move, within, workflow.TimerOptions{Summary: "bound of the move to another host"})
		workflow.Go(move, func(move workflow.Context) {
			if timer.Get(move, nil) == nil {
				cancel()
			}
		})
		if !s.moveToFollow(move, what, fmt.Sprintf("it took more than %s", within)) {
			return false
		}
		s.clockFinally(ctx, what)
		return true
	}
	s.clockFinally(ctx, what)
	return !lost || s.moveToFollow(ctx, what, fmt.Sprintf("the finally_timeout of %s was over first", s.spec.FinallyTimeout))
}

// clockFinally ends the steps that follow when finally_timeout is over.
func (s *stage) clockFinally(ctx workflow.Context, what string) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		timer := workflow.NewTimerWithOptions(ctx, s.spec.FinallyTimeout, workflow.TimerOptions{Summary: "finally_timeout"})
		if timer.Get(ctx, nil) != nil || s.endFinally == nil {
			return
		}
		cause := &run.Cause{
			Trigger: run.TriggerStageTimeout, Source: s.doc.Node,
			Message: fmt.Sprintf("the finally_timeout of %s is over, in the %s steps", s.spec.FinallyTimeout, what),
		}
		nodes := s.runningNodes(true)
		for _, node := range nodes {
			s.nodeAsk[node] = cause
		}
		s.failed.note(run.TimedOut, cause)
		s.endFinally()
		s.end(ctx, nodes, cause)
	})
}

// moveToFollow takes another host for the steps that follow in a stage that lost
// its own. They learn of it by BELAY_WORKER_LOST=1 and a fresh workspace.
func (s *stage) moveToFollow(ctx workflow.Context, what, late string) bool {
	s.giveResources(ctx)
	s.lostWorkspace()
	s.host, s.hostLost, s.moved = nil, false, true
	cause := s.takeHost(ctx)
	if cause == nil {
		return true
	}
	why := cause.Message
	switch {
	case s.now:
		why = "it was asked to leave them out"
	case ctx.Err() != nil:
		why = late
	}
	s.doc.Notes = append(s.doc.Notes, fmt.Sprintf("the %s steps did not run: their host was lost, and no other could be had: %s", what, why))
	return false
}
