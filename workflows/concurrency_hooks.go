package workflows

import (
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/run"
)

// takeSlot waits for the pipeline's slot in its concurrency group, if it names
// one. A run that is cancelled meanwhile, or refused, runs nothing.
func (p *pipeline) takeSlot(ctx workflow.Context) {
	if p.plan.Concurrency == nil || p.halt.on() {
		return
	}
	all := linger(p.plan.Finally)
	for i := range p.plan.Stages {
		all = max(all, linger(p.plan.Stages[i].Steps, p.plan.Stages[i].Finally))
	}
	var err error
	p.slot, err = newSlot(p.plan.Concurrency, p.scope(nil), p.doc.Tenant, p.doc.Project, activities.SlotRequest{
		Owner: activities.Owner{RunKey: p.doc.RunKey, WorkflowID: p.doc.ID, RunID: p.doc.RunID}, Linger: all,
	})
	if err != nil {
		p.halt.stop(run.Failed, &run.Cause{Trigger: run.TriggerInvalid, Message: err.Error()})
		return
	}
	p.slot.mail = newMailbox(ctx)
	p.slot.show = func(w *run.WaitingFor) { p.doc.WaitingFor = w; p.describe(ctx) }
	if cause := p.slot.take(ctx); cause != nil {
		p.halt.stop(cause.Trigger.Status(), cause)
	}
	awaitHalt(ctx, &p.halt)
}

// leaveSlot gives the slot back, when everything else of the run is over.
func (p *pipeline) leaveSlot(ctx workflow.Context) {
	if note := p.slot.release(ctx, p.plan.ReleaseTimeout); note != "" {
		p.doc.Notes = append(p.doc.Notes, note)
	}
}

// takeSlot waits for the stage's slot in its concurrency group, if it names one.
// It reports whether the stage may begin: one that is cancelled meanwhile, or
// refused, takes no host and runs nothing.
func (s *stage) takeSlot(ctx workflow.Context) bool {
	if s.spec.Concurrency == nil {
		return true
	}
	scope := s.scope()
	scope["env"] = texts(s.in.Env) // as with the stage's own env, that of the pipeline
	var err error
	s.slot, err = newSlot(s.spec.Concurrency, scope, s.in.Tenant, s.in.Project, activities.SlotRequest{
		Owner: s.owner, Linger: linger(s.spec.Steps, s.spec.Finally),
	})
	if err != nil {
		s.halt.stop(run.Failed, &run.Cause{Trigger: run.TriggerInvalid, Source: s.doc.Node, Message: err.Error()})
		s.keptOut = true
		return false
	}
	s.slot.mail = s.mail(ctx)
	s.slot.show = func(w *run.WaitingFor) { s.doc.WaitingFor = w; s.describe(ctx) }
	if cause := s.slot.take(ctx); cause != nil {
		cause.Source = s.doc.Node
		s.halt.stop(cause.Trigger.Status(), cause)
	}
	s.keptOut = !s.slot.held
	return s.slot.held
}

// leaveSlot gives the slot back, when everything else of the stage is over.
func (s *stage) leaveSlot(ctx workflow.Context) {
	if note := s.slot.release(ctx, s.in.ReleaseTimeout); note != "" {
		s.doc.Notes = append(s.doc.Notes, note)
	}
}
