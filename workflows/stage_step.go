package workflows

import (
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/expr"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// runStep runs one step to its end, over all its attempts, and settles its
// document.
func (s *stage) runStep(ctx workflow.Context, st *spec.Step) outcome {
	doc := s.step(st.Name)
	if err := s.flights.Acquire(ctx, 1); err != nil || ctx.Err() != nil || s.nodeAsk[doc.Node] != nil {
		return s.neverStarted(doc, err == nil)
	}
	defer s.flights.Release(1)
	now := workflow.Now(ctx)
	doc.Status, doc.StartedAt = run.Running, &now
	stepCtx, cancel := workflow.WithCancel(ctx)
	s.cancels[doc.Node] = cancel
	s.describe(ctx)

	out := s.execute(stepCtx, st, doc)

	cancel()
	delete(s.cancels, doc.Node)
	s.settle(ctx, st, doc, &out)
	return out
}

// neverStarted settles a step that was stopped before it began: cancelled where
// somebody asked for just that, else skipped with what stopped the others.
func (s *stage) neverStarted(doc *run.Step, acquired bool) outcome {
	if acquired {
		s.flights.Release(1)
	}
	if cause := s.nodeAsk[doc.Node]; cause != nil && !s.halt.on() {
		doc.Status, doc.Cause = run.Cancelled, cause
		return outcome{status: run.Cancelled, cause: cause}
	}
	why := s.halt.cause
	if why == nil {
		why = s.failed.cause
	}
	doc.Status, doc.Cause = run.Skipped, because(why)
	return outcome{status: run.Skipped}
}

// execute evaluates a step's expressions and runs it where it belongs.
func (s *stage) execute(ctx workflow.Context, st *spec.Step, doc *run.Step) outcome {
	in, err := s.stepInput(st, doc)
	if err != nil {
		return outcome{status: run.Failed, cause: &run.Cause{Trigger: run.TriggerInvalid, Source: doc.Node, Message: err.Error()}}
	}
	if in.Claim != nil {
		s.claims[st.Name] = in.Claim
	}
	own := holds{resources: in.Step.Resources}
	var cause *run.Cause
	own.slots, cause = s.takeSlots(ctx, own.of(st), doc)
	s.holds[st.Name] = own
	switch {
	case cause != nil:
		return outcome{status: cause.Trigger.Status(), cause: cause}
	case ctx.Err() != nil && len(own.slots) > 0:
		return outcome{status: run.Cancelled}
	}
	if st.Uses != "" {
		return s.useLight(ctx, st, doc, &in)
	}
	var res activities.StepResult
	var steps *activities.Steps
	again := func(made int) (workflow.ActivityOptions, any) {
		in.Attempts += made
		opts := stepOptions(s.host.Queue, st, in.Attempts, s.in.ReleaseTimeout)
		opts.StartToCloseTimeout += acquireBound(st)
		return opts, in
	}
	own.asked = true
	s.holds[st.Name] = own
	opts, _ := again(0)
	err = s.onHost(ctx, opts, again, steps.RunStep, in, &res)
	return readOutcome(doc.Node, &res, err)
}

// settle writes how a step ended into its document.
func (s *stage) settle(ctx workflow.Context, st *spec.Step, doc *run.Step, out *outcome) {
	if out.status == run.Cancelled {
		out.cause = s.nodeAsk[doc.Node] // nil where the stage or the group stopped it, which says why
	}
	if out.cause != nil && out.cause.Trigger == run.TriggerWorkerLost {
		s.noticeLoss(ctx)
	}
	if out.status == run.Cancelled && out.cause == nil {
		out.cause = s.lost
	}
	s.limitOutputs(doc, out)
	now := workflow.Now(ctx)
	res := &out.result
	doc.EndedAt = &now
	record(doc, out)
	for _, note := range res.Notes {
		s.doc.Notes = append(s.doc.Notes, doc.Node+": "+note)
	}
	for _, note := range res.Services { // each step that ran then tells of it
		if !slices.Contains(s.doc.Notes, note) {
			s.doc.Notes = append(s.doc.Notes, note)
		}
	}
	if len(res.Outputs) > 0 {
		s.outputs[st.Name] = res.Outputs
	}
	s.giveBack(ctx, st, doc, out)
	s.settleClaim(ctx, st, out)
	s.measureStep(ctx, doc)
	s.describe(ctx)
}

// noticeLoss looks what the loss of a worker in the middle of a step means: the
// loss of the host, or only of the process, if another has taken its place.
// Where the file asks for that, the stage begins again in either case.
func (s *stage) noticeLoss(ctx workflow.Context) {
	s.again = s.spec.OnWorkerLost == spec.LostRerun && !s.bodyOver
	if s.host == nil || s.hostLost {
		return
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	alive, err := s.hostAlive(d)
	if err != nil {
		workflow.GetLogger(d).Warn("could not look whether the host lives", "error", err)
	}
	s.hostLost = err == nil && !alive
}

// limitOutputs fails a step whose outputs are more than a stage may hand over:
// they travel in Temporal's history.
func (s *stage) limitOutputs(doc *run.Step, out *outcome) {
	s.outputBytes += size(out.result.Outputs)
	if !out.status.OK() || s.outputBytes <= maxStageOutputs {
		return
	}
	out.status, out.result.Outputs = run.Failed, nil
	out.cause = &run.Cause{
		Trigger: run.TriggerLimitExceeded, Source: doc.Node,
		Message: fmt.Sprintf("the outputs of the stage come to %d bytes; a stage may hand over %d", s.outputBytes, maxStageOutputs),
	}
}

func size(m map[string]string) int {
	n := 0
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// stepInput is a step with its expressions evaluated.
func (s *stage) stepInput(st *spec.Step, doc *run.Step) (activities.StepInput, error) {
	in := activities.StepInput{
		Owner: s.owner, Node: doc.Node, Step: *st, Vars: s.vars(st), Body: !s.in.Finally && !s.follows(doc),
	}
	in.Step.Env, in.Step.When, in.Step.Dedup = nil, nil, nil
	scope := s.scope()
	env, err := evaluate(st.Env, scope)
	if err != nil {
		return in, err
	}
	in.Services = s.services
	if in.Step.Container, err = inContainer(st.Container, scope); err != nil {
		return in, err
	}
	in.Env = maps.Clone(s.env)
	maps.Copy(in.Env, env)
	if in.Step.With, err = st.Parameters(scope); err != nil {
		return in, err
	}
	if in.Claim, err = s.stepClaim(st, doc.Node, in.Env, in.Step.With); err != nil {
		return in, err
	}
	if in.Step.Resources, err = s.evaluateResources(st, scope); err != nil {
		return in, err
	}
	if err := s.besideStage(in.Step.Resources); err != nil {
		return in, err
	}
	if s.hold != nil {
		in.Held = s.hold.number
	}
	if holdsInAttempt(&in.Step) {
		in.Holder, in.Label, in.Release = s.holder(), s.label, s.in.ReleaseTimeout
	}
	if in.Step.WorkingDir, err = expr.String(st.WorkingDir, scope); err != nil {
		return in, fmt.Errorf("working_dir: %w", err)
	}
	if in.Step.WorkingDir == "" {
		return in, nil
	}
	if err := spec.CheckWorkingDir(in.Step.WorkingDir); err != nil {
		return in, fmt.Errorf("working_dir: %w", err)
	}
	return in, nil
}

// vars are the variables that tell a step where it is.
func (s *stage) vars(st *spec.Step) map[string]string {
	vars := map[string]string{
		"BELAY_RUN_ID": s.in.ID, "BELAY_RUN_KEY": s.in.RunKey, "BELAY_PIPELINE": s.in.Pipeline,
		"BELAY_STAGE": s.doc.Name, "BELAY_STEP": st.Name, "BELAY_TENANT": s.in.Tenant, "BELAY_PROJECT": s.in.Project,
	}
	if s.moved {
		vars["BELAY_WORKER_LOST"] = "1"
	}
	return vars
}

// evaluate evaluates the templates of an env, in the order of its keys.
func evaluate(templates map[string]string, scope expr.Scope) (map[string]string, error) {
	out := make(map[string]string, len(templates))
	for _, k := range slices.Sorted(maps.Keys(templates)) {
		v, err := expr.String(templates[k], scope)
		if err != nil {
			return nil, fmt.Errorf("env.%s: %w", k, err)
		}
		out[k] = v
	}
	return out, nil
}
