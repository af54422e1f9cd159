package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// stageGrace is what the scripts that acquire for a stage have between SIGTERM and
// SIGKILL.
const stageGrace = 10 * time.Second

// stageHold is what the stage holds over all its steps: its host keeps that, and an
// activity there tells as long as it does.
type stageHold struct {
	number int                 // of the attempt that took it
	stop   workflow.CancelFunc // ends that activity
}

// takeResources has the host acquire what the stage holds over all its steps. The
// cause it returns is nil where it holds all.
func (s *stage) takeResources(ctx workflow.Context) *run.Cause {
	if len(s.spec.Resources) == 0 {
		return nil
	}
	held, err := s.evaluateResources(&spec.Step{Resources: s.spec.Resources}, s.scope())
	if err != nil {
		return &run.Cause{Trigger: run.TriggerInvalid, Source: s.doc.Node, Message: err.Error()}
	}
	s.took, s.taking = held, true
	s.wait(ctx, "resources", s.host.Host)
	s.describe(ctx)
	defer func() { s.doc.WaitingFor, s.taking = nil, false }()
	var steps *activities.Steps
	var res activities.StepResult
	in := s.takeInput(held)
	err = s.onHost(ctx, takeOptions(s.host.Queue, &in.Step, s.in.ReleaseTimeout), nil, steps.TakeResources, in, &res)
	s.takes = in.Attempts + 1
	out := readOutcome(s.doc.Node, &res, err)
	s.doc.Resources = append(s.doc.Resources, out.result.Resources...)
	s.doc.Notes = append(s.doc.Notes, out.result.Notes...)
	if err != nil {
		cause := s.activityCause(err)
		if cause.Trigger == run.TriggerWorkerLost {
			s.noticeLoss(ctx)
		}
		return cause
	}
	s.lost, s.everHeld = nil, true
	s.hold = &stageHold{number: res.Attempt}
	s.watchHold(ctx, s.hold)
	return nil
}

// takeInput is what the stage holds, as a step of its own node that holds it.
func (s *stage) takeInput(held []spec.Resource) activities.StepInput {
	st := spec.Step{
		Name: s.doc.Name, Resources: held, Timeout: s.spec.Timeout, GracePeriod: stageGrace, OutputLimit: maxStageOutput,
	}
	for i := range held {
		for _, name := range held[i].Secrets {
			if !slices.Contains(st.Secrets, name) {
				st.Secrets = append(st.Secrets, name)
			}
		}
	}
	vars := s.vars(&st)
	delete(vars, "BELAY_STEP")
	return activities.StepInput{
		Owner: s.owner, Node: s.doc.Node, Step: st, Env: s.env, Vars: vars, Attempts: s.takes, Body: !s.in.Finally && !s.bodyOver,
		Services: s.services, Holder: s.holder(), Label: s.label, Release: s.in.ReleaseTimeout,
	}
}

// maxStageOutput is how much is kept of what scripts print that acquire for a stage.
const maxStageOutput = 16 << 20

// takeOptions are for acquiring what a stage holds, once: the stage has no retry. Its
// own clock bounds it.
func takeOptions(queue string, st *spec.Step, release time.Duration) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              queue,
		ScheduleToStartTimeout: hostPickup,
		StartToCloseTimeout:    st.Timeout + release + time.Minute,
		HeartbeatTimeout:       stageGrace + heartbeatMargin,
		WaitForCancellation:    true,
		Summary:                "acquires what the stage holds",
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
	}
}

// keepOptions are for keeping it, as long as the stage lasts. Where the worker falls
// silent it is asked once more: only Temporal may have been away.
func keepOptions(queue string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              queue,
		ScheduleToStartTimeout: hostPickup,
		StartToCloseTimeout:    365 * 24 * time.Hour,
		HeartbeatTimeout:       heartbeatMargin,
		Summary:                "keeps what the stage holds",
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 1},
	}
}

// watchHold ends the steps of the stage where what it holds is lost: they may not run
// without.
func (s *stage) watchHold(ctx workflow.Context, h *stageHold) {
	d, _ := workflow.NewDisconnectedContext(ctx)
	d, h.stop = workflow.WithCancel(d)
	host := s.host
	workflow.Go(d, func(d workflow.Context) {
		var steps *activities.Steps
		err := s.onHost(d, keepOptions(host.Queue), nil, steps.KeepResources, activities.KeepInput{Owner: s.owner, Number: h.number}, nil)
		if s.hold != h {
			return // given back
		}
		cause := &run.Cause{Trigger: run.TriggerDependencyUnavailable, Source: s.doc.Node, Message: "what the stage holds was given back before its end"}
		if err != nil {
			if out := readOutcome(s.doc.Node, nil, err); out.cause != nil {
				cause = out.cause
			}
		}
		s.losing++
		defer func() { s.losing-- }()
		s.loseHold(d, cause)
	})
}

// loseHold ends the steps that run, of the stage or of those that follow. Where the
// worker is lost with what it held it is as if it were lost with a step.
func (s *stage) loseHold(ctx workflow.Context, cause *run.Cause) {
	s.hold.stop()
	s.hold = nil
	s.doc.Notes = append(s.doc.Notes, "the stage lost what it held: "+cause.Message)
	following := s.endFinally != nil
	nodes := s.runningNodes(following)
	if !s.halt.on() {
		s.lost = cause
		s.fail(cause)
	}
	if following {
		s.endFinally()
	} else if s.stopBody != nil {
		s.stopBody()
	}
	if cause.Trigger == run.TriggerWorkerLost {
		s.noticeLoss(ctx) // its processes end by themselves
		return
	}
	s.end(ctx, nodes, cause)
}

// awaitLoss waits until it is known what a loss that was just noticed means.
func (s *stage) awaitLoss(ctx workflow.Context) {
	if s.losing == 0 {
		return
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	if err := workflow.Await(d, func() bool { return s.losing == 0 }); err != nil {
		workflow.GetLogger(d).Warn("stopped waiting for what a loss means", "error", err)
	}
}

// holdsAgain makes sure that the stage holds what it is to hold when steps follow:
// what was lost is taken once more, as they undo things under it.
func (s *stage) holdsAgain(ctx workflow.Context, what string) bool {
	if len(s.spec.Resources) == 0 || s.hold != nil {
		return true
	}
	s.giveResources(ctx)
	cause := s.takeResources(ctx)
	if cause == nil {
		return true
	}
	s.doc.Notes = append(s.doc.Notes, fmt.Sprintf("the %s steps did not run: what the stage held was lost, and could not be had again: %s",
		what, cause.Message))
	return false
}

// giveResources gives back what the stage holds on its host, or held on one that is
// lost, in time of its own: after its steps, before its workspace.
func (s *stage) giveResources(ctx workflow.Context) {
	if len(s.took) == 0 {
		return
	}
	if s.hold != nil {
		s.hold.stop()
		s.hold = nil
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	s.wait(d, "release", s.host.Host)
	defer func() { s.doc.WaitingFor = nil }()
	at := &place{queue: s.host.Queue, label: s.label, gone: s.hostLost}
	in := activities.ReleaseInput{RunKey: s.in.RunKey, Node: s.doc.Node, Stage: true, Declared: s.stageMayHold()}
	err := at.releaseUntil(d, in, s.in.ReleaseTimeout, func(entries []resource.Entry) { showIn(&s.doc.Resources, entries) })
	why := ""
	if err != nil {
		why = plainly(err)
		s.doc.Notes = append(s.doc.Notes, "nobody could be asked to give back what the stage held: "+why)
	}
	s.settleHeld(why, at.gone)
	s.took = nil
}

// settleHeld settles in the document what nobody said anything of any more: it is
// given back, unless nobody could be asked, or only its host could be, which is gone.
func (s *stage) settleHeld(why string, gone bool) {
	for i := range s.doc.Resources {
		r := &s.doc.Resources[i]
		if ofWorkspace(r) || r.State != run.ResourceHeld && r.State != run.ResourceReleasing {
			continue
		}
		r.State, r.Error, r.Attempts = run.ResourceReleased, "", r.Attempts+1
		switch {
		case why != "":
			r.State, r.Error = run.ResourceLeaked, why
		case gone && resource.HostBound(r.Kind):
			r.State, r.Error = run.ResourceLeaked, fmt.Sprintf("host %s does not answer: it gives it back when it returns", s.host.Host)
		}
	}
}

// stageMayHold is what the stage may have acquired of which nobody knows.
func (s *stage) stageMayHold() []resource.Entry {
	st := &spec.Step{Name: s.doc.Name, Resources: s.took}
	out := s.mayHold(st, s.doc.Node, max(s.takes, 1))
	for i := range out {
		e := &out[i]
		e.Scope = resource.ScopeStage
		if e.Release != nil {
			at := slices.IndexFunc(s.took, func(r spec.Resource) bool { return r.Kind == e.Kind && r.Name == e.Name })
			e.Release.Secrets = s.took[at].Secrets
			delete(e.Release.Env, "BELAY_STEP")
		}
	}
	return out
}

// besideStage refuses what a step is to hold that the stage holds already: it would
// wait for it for ever.
func (s *stage) besideStage(list []spec.Resource) error {
	for _, r := range list {
		for _, held := range s.took {
			if r.Kind == held.Kind && resource.EnvName(r.Name) == resource.EnvName(held.Name) {
				return fmt.Errorf("resources: the stage holds the %s %s over all its steps", held.Kind, held.Name)
			}
		}
	}
	return nil
}
