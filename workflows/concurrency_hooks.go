package workflows

import (
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// takeSlot waits for the pipeline's slot in its concurrency group, if it names
// one. A run that is cancelled meanwhile, or refused, runs nothing.
func (p *pipeline) takeSlot(ctx workflow.Context) {
	if p.plan.Concurrency == nil || p.halt.on() {
		return
	}
	s, err := newSlot(p.plan.Concurrency, p.scope(nil), p.doc.Tenant, p.doc.Project, p.slotRequest())
	if err != nil {
		p.halt.stop(run.Failed, &run.Cause{Trigger: run.TriggerInvalid, Message: err.Error()})
		return
	}
	p.slot = s
	p.wait(ctx, s)
}

// takeQuota waits for the run's turn among those of its tenant, if that has a
// quota. It comes before the pipeline's group: whoever holds a quota waits only
// for groups, and whoever holds a group never for a quota.
func (p *pipeline) takeQuota(ctx workflow.Context) {
	if p.plan.TenantRuns == 0 || p.halt.on() {
		return
	}
	request := p.slotRequest()
	request.Limit, request.OnFull = p.plan.TenantRuns, spec.OnFullQueue
	p.quota = &slot{
		kind: run.WaitsQuota, name: "runs of " + p.doc.Tenant,
		in: activities.SlotInput{Tenant: p.doc.Tenant, Group: run.QuotaGroup, Request: request},
	}
	p.wait(ctx, p.quota)
}

func (p *pipeline) slotRequest() activities.SlotRequest {
	all := linger(p.plan.Finally)
	for i := range p.plan.Stages {
		all = max(all, linger(p.plan.Stages[i].Steps, p.plan.Stages[i].Finally))
	}
	return activities.SlotRequest{
		Owner: activities.Owner{RunKey: p.doc.RunKey, WorkflowID: p.doc.ID, RunID: p.doc.RunID}, Linger: all,
	}
}

// wait waits for a slot of the run; a refusal stops the run.
func (p *pipeline) wait(ctx workflow.Context, s *slot) {
	if p.mail == nil {
		p.mail = newMailbox(ctx)
	}
	s.mail = p.mail
	s.show = func(w *run.WaitingFor) { p.doc.WaitingFor = w; p.describe(ctx) }
	if cause := s.take(ctx); cause != nil {
		p.halt.stop(cause.Trigger.Status(), cause)
	}
	awaitHalt(ctx, &p.halt)
}

// leave gives a slot back, when everything else of the run is over.
func (p *pipeline) leave(ctx workflow.Context, s *slot) {
	if note := s.release(ctx, p.plan.ReleaseTimeout); note != "" {
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
