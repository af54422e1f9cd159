package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"belay.run/internal/expr"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// sequence runs steps and groups in order. Where every is set a failure does not
// keep the later ones from running, as it is with finally steps.
func (s *stage) sequence(ctx workflow.Context, steps []spec.Step, every bool) {
	for i := range steps {
		if ctx.Err() != nil || s.hostLost || s.again || s.lost != nil {
			return
		}
		st := &steps[i]
		if len(st.Parallel) > 0 {
			s.group(ctx, st, every)
			continue
		}
		if s.gate(st, every) {
			s.judge(st, s.runStep(ctx, st))
		}
	}
}

// gate decides whether a step or group runs, and marks it skipped where not: by
// its own when, or because of what failed before it. A when that reads a status
// stands in for the rule that everything before must have gone well.
func (s *stage) gate(st *spec.Step, every bool) bool {
	if s.blocked != nil && !every && (st.When == nil || !st.When.ReadsStatus) {
		s.skip(st, because(s.blocked))
		return false
	}
	if st.When == nil {
		return true
	}
	ok, err := expr.Bool(st.When.Expr, s.scope())
	if err != nil {
		cause := &run.Cause{Trigger: run.TriggerInvalid, Source: run.StepNode(s.doc.Node, st.Name), Message: fmt.Sprintf("when: %v", err)}
		s.skip(st, cause)
		s.judge(st, outcome{status: run.Failed, cause: cause})
		return false
	}
	if !ok {
		s.skip(st, nil)
	}
	return ok
}

// skip marks a step, or every member of a group, as skipped for cause; nil means
// by its own when.
func (s *stage) skip(st *spec.Step, cause *run.Cause) {
	if len(st.Parallel) > 0 {
		s.groups[st.Name] = run.Skipped
		for i := range st.Parallel {
			s.skip(&st.Parallel[i], cause)
		}
		return
	}
	doc := s.step(st.Name)
	doc.Status, doc.Cause = run.Skipped, cause
	if cause != nil && cause.Trigger == run.TriggerInvalid {
		doc.Status = run.Failed
	}
}

// group runs the members of a parallel group at once. Their own on_failure says
// whether a failure counts in the group, the group's what it does to the stage.
func (s *stage) group(ctx workflow.Context, g *spec.Step, every bool) {
	if !s.gate(g, every) {
		return
	}
	s.groups[g.Name] = run.Running
	gctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	var first failure
	wg := workflow.NewWaitGroup(ctx)
	// No more coroutines than can have an activity: every event wakes them all.
	lanes := workflow.NewSemaphore(ctx, maxInFlight)
	for i := range g.Parallel {
		m := &g.Parallel[i]
		if !s.gate(m, every) {
			if doc := s.step(m.Name); doc.Status == run.Failed {
				first.note(doc.Status, doc.Cause)
			}
			continue
		}
		wg.Add(1)
		held := lanes.Acquire(gctx, 1) == nil // else the group was stopped, as the step will notice
		workflow.Go(gctx, func(ctx workflow.Context) {
			defer wg.Done()
			if held {
				defer lanes.Release(1)
			}
			out := s.runStep(ctx, m)
			if !out.bad() || s.halt.on() || ignored(s.step(m.Name), m, out) {
				return
			}
			first.note(out.status, out.cause)
			s.rollback = s.rollback || m.OnFailure.For(trigger(out)) == spec.Rollback
			if g.FailFast && ctx.Err() == nil {
				nodes := s.memberNodes(g)
				cancel()
				s.end(ctx, nodes, out.cause)
			}
		})
	}
	wg.Wait(ctx)
	s.settleGroup(g, first)
}

// settleGroup gives a group its state, explains members that its first failure
// stopped, and lets that failure count in the stage.
func (s *stage) settleGroup(g *spec.Step, first failure) {
	s.groups[g.Name] = run.Succeeded
	if first.status == "" {
		return
	}
	s.groups[g.Name] = first.status
	for i := range g.Parallel {
		doc := s.step(g.Parallel[i].Name)
		if doc.Cause == nil && doc.Status == run.Cancelled && !s.halt.on() {
			doc.Cause = first.cause
		}
	}
	s.judge(g, outcome{status: first.status, cause: first.cause})
}

// memberNodes are the members of a group that run.
func (s *stage) memberNodes(g *spec.Step) []string {
	var nodes []string
	for i := range g.Parallel {
		node := s.step(g.Parallel[i].Name).Node
		if _, ok := s.cancels[node]; ok {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// ignored reports whether a step's own on_failure makes its failure not count,
// and notes that in its document.
func ignored(doc *run.Step, st *spec.Step, out outcome) bool {
	if trigger(out) == "" || st.OnFailure.For(trigger(out)) != spec.Ignore {
		return false
	}
	doc.Ignored = true
	return true
}

func trigger(out outcome) run.Trigger {
	if out.cause == nil {
		return ""
	}
	return out.cause.Trigger
}

// judge lets the end of a step or group count in the stage, as its on_failure
// says. The end of what the stage itself stopped counts for nothing.
func (s *stage) judge(st *spec.Step, out outcome) {
	if !out.bad() || s.halt.on() {
		return
	}
	switch st.OnFailure.For(trigger(out)) {
	case spec.Ignore:
		if len(st.Parallel) == 0 {
			s.step(st.Name).Ignored = true
		}
	case spec.Continue:
		s.failed.note(out.status, out.cause)
	case spec.Abort, spec.Rollback:
		s.rollback = s.rollback || st.OnFailure.For(trigger(out)) == spec.Rollback
		s.failed.note(out.status, out.cause)
		if s.blocked == nil {
			s.blocked = out.cause
		}
	}
}
