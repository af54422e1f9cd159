package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/measure"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/tracing"
)

// stage is the state of one stage's workflow.
type stage struct {
	in     StageInput
	spec   *spec.Stage
	doc    run.Stage
	index  map[string]int // step name to its place in doc.Steps
	owner  activities.Owner
	env    map[string]string
	halt   halt
	failed failure
	// blocked is the failure after which ordinary steps are skipped.
	blocked *run.Cause
	// outputs and groups are what expressions of later steps read.
	outputs map[string]map[string]string
	groups  map[string]run.Status
	// outputBytes is the size of all outputs so far.
	outputBytes int
	flights     workflow.Semaphore
	cancels     map[string]workflow.CancelFunc  // of the steps that run, by node
	nodeAsk     map[string]*run.Cause           // steps that somebody cancelled alone
	keys        map[string]string               // the nodes of steps by their evaluated keys
	claims      map[string]*activities.Claiming // of the steps that run, by name
	host        *activities.Binding
	services    []activities.ServiceAddress // where those of the stage are
	now         bool                        // leave out what finally has not run yet
	ending      int                         // End activities under way
	rollback    bool                        // an on_failure asks for the rollback steps
	// endFinally ends the steps that run of those that follow; nil while none do.
	endFinally workflow.CancelFunc
	hostLost   bool              // the host does not answer any more
	queues     map[string]string // of the hosts that took the stage, by host
	again      bool              // the stage is to begin anew, on whatever host
	// moved: the steps that follow run on another host than the others.
	moved bool
	slot  *slot  // in the stage's concurrency group
	label string // of the hosts that may take the stage
	// holds are what steps hold that run, by name; releasing how much is being
	// given back in the background, and slotsLater what waits until nothing of
	// the stage can live on.
	holds      map[string]holds
	releasing  int
	slotsLater []func(workflow.Context)
	// took is what the stage holds, or may hold, over all its steps, takes how often
	// it tried to take that, hold nil while it does not have it, and lost why it has
	// no more. stopBody ends the steps of the body; losing are losses looked into.
	took     []spec.Resource
	takes    int
	taking   bool
	everHeld bool
	hold     *stageHold
	lost     *run.Cause
	losing   int
	stopBody workflow.CancelFunc

	mailbox  *mailbox   // of the news of concurrency groups
	keptOut  bool       // it never had that slot
	bodyOver bool       // only finally and release are left
	above    *run.Cause // why the stage was cancelled from above, once known
}

// Stage runs one stage, or one leg of it: it takes a host, fills a workspace,
// runs the steps, then those of rollback and finally, gives the workspace back and confirms.
// It returns the stage's document, as a result or in the details of the error.
func Stage(ctx workflow.Context, in StageInput) (*run.Stage, error) {
	s, err := newStage(ctx, in)
	if err != nil {
		return nil, err
	}
	s.body(ctx)
	s.rollBack(ctx)
	s.runFinally(ctx)
	s.release(ctx)
	s.leaveSlot(ctx)
	return s.close(ctx)
}

func newStage(ctx workflow.Context, in StageInput) (*stage, error) {
	info := workflow.GetInfo(ctx)
	node := run.StageNode(in.Stage.Name, in.Leg)
	now := workflow.Now(ctx)
	s := &stage{
		in: in, spec: &in.Stage, env: map[string]string{},
		doc: run.Stage{
			Name: in.Stage.Name, Leg: in.Leg, Node: node, Status: run.Running, StartedAt: &now, Finally: in.Finally,
			WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID,
		},
		owner: activities.Owner{
			RunKey: in.RunKey, Node: node,
			WorkflowID: info.WorkflowExecution.ID, RunID: info.WorkflowExecution.RunID,
		},
		outputs: map[string]map[string]string{},
		groups:  map[string]run.Status{},
		cancels: map[string]workflow.CancelFunc{},
		nodeAsk: map[string]*run.Cause{},
		keys:    map[string]string{},
		claims:  map[string]*activities.Claiming{},
		holds:   map[string]holds{},
		queues:  map[string]string{},
		flights: workflow.NewSemaphore(ctx, maxInFlight),
	}
	tracing.Tell(ctx, "stage "+node, &tracing.Scope{
		Tenant: in.Tenant, Project: in.Project, Pipeline: in.Pipeline, Run: in.RunKey, Node: node,
	})
	s.layOut()
	if err := workflow.SetQueryHandler(ctx, StatusQuery, func() (*run.Stage, error) { return &s.doc, nil }); err != nil {
		return nil, fmt.Errorf("setting the status query: %w", err)
	}
	if err := s.listen(ctx); err != nil {
		return nil, err
	}
	s.describe(ctx)
	return s, nil
}

// layOut lists every step of the stage in its document, all pending.
func (s *stage) layOut() {
	s.index = map[string]int{}
	s.doc.Steps = StepsOf(&s.in)
	for i := range s.doc.Steps {
		s.index[s.doc.Steps[i].Name] = i
	}
}

func (s *stage) step(name string) *run.Step { return &s.doc.Steps[s.index[name]] }

// body runs everything of the stage that a cancel or its timeout ends.
func (s *stage) body(ctx workflow.Context) {
	work, cancel := workflow.WithCancel(ctx)
	s.halt.arm(ctx, cancel)
	defer cancel()
	s.heed(ctx)
	if s.takeSlot(work) {
		s.startClock(work)
		s.attempts(work)
	}
	awaitHalt(ctx, &s.halt)
	s.bodyOver = true
	s.skipRest()
}

// attempts runs the stage, again and again where the host is lost and the file
// says so.
func (s *stage) attempts(ctx workflow.Context) {
	for rerun := 0; ; rerun++ {
		s.attempt(ctx)
		if !s.again {
			return
		}
		s.giveResources(ctx)
		// What lost attempts held is released by the names of their nodes, which
		// those of the next attempts bear too.
		if rerun == maxReruns || s.halt.on() || workflow.Await(ctx, func() bool { return s.releasing == 0 }) != nil {
			s.giveUp(ctx)
			return
		}
		s.startOver(rerun)
	}
}

// giveUp has the stage not begin again, although its file says so: it was begun
// often enough, or stopped meanwhile. What follows the steps runs all the same.
func (s *stage) giveUp(ctx workflow.Context) {
	if workflow.GetVersion(ctx, "follow-when-not-begun-again", workflow.DefaultVersion, 1) != workflow.DefaultVersion {
		s.again = false
	}
}

// attempt takes a host and runs the stage's steps on it.
func (s *stage) attempt(ctx workflow.Context) {
	if err := s.evaluateEnv(); err != nil {
		s.fail(&run.Cause{Trigger: run.TriggerInvalid, Source: s.doc.Node, Message: err.Error()})
		return
	}
	if s.needsHost() {
		if cause := s.takeHost(ctx); cause != nil {
			s.fail(cause)
			s.again = s.again || s.hostLost && s.spec.OnWorkerLost == spec.LostRerun
			return
		}
	}
	s.steps(ctx)
	if len(s.spec.Artifacts) > 0 && s.failed.status == "" && !s.halt.on() {
		if cause := s.saveArtifacts(ctx); cause != nil {
			s.fail(cause)
		}
	}
}

// steps runs the steps of the body. Those of a stage that holds something are ended
// where that is lost.
func (s *stage) steps(ctx workflow.Context) {
	if len(s.spec.Resources) == 0 {
		s.sequence(ctx, s.spec.Steps, s.in.Finally)
		return
	}
	body, stop := workflow.WithCancel(ctx)
	defer stop()
	s.stopBody = stop
	defer func() { s.stopBody = nil }()
	s.sequence(body, s.spec.Steps, s.in.Finally)
	s.awaitLoss(ctx)
}

// fail makes the stage end with cause, unless something stopped it before.
func (s *stage) fail(cause *run.Cause) {
	s.failed.note(cause.Trigger.Status(), cause)
	s.blocked = cause
}

// startOver forgets what was done on the host whose worker was lost: the stage
// begins anew, in an empty workspace.
func (s *stage) startOver(rerun int) {
	s.doc.Notes = append(s.doc.Notes, fmt.Sprintf("the worker of host %s was lost; begun again (%d of %d)",
		s.host.Host, rerun+1, maxReruns))
	s.gaveWorkspace(fmt.Sprintf("the worker of host %s was lost: the host gives it back when the stage has ended", s.host.Host))
	s.host, s.hostLost, s.again, s.blocked, s.failed, s.rollback = nil, false, false, nil, failure{}, false
	s.outputBytes, s.lost = 0, nil
	s.outputs, s.groups = map[string]map[string]string{}, map[string]run.Status{}
	s.doc.Steps = nil
	s.layOut()
}

// startClock stops the stage when its timeout is over. It counts from the start
// of the stage, which a wait for a concurrency group comes before.
func (s *stage) startClock(ctx workflow.Context) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		timer := workflow.NewTimerWithOptions(ctx, s.spec.Timeout, workflow.TimerOptions{Summary: "timeout of the stage"})
		if timer.Get(ctx, nil) == nil {
			s.stop(ctx, run.TimedOut, &run.Cause{
				Trigger: run.TriggerStageTimeout, Source: s.doc.Node,
				Message: fmt.Sprintf("the stage's timeout of %s is over", s.spec.Timeout),
			})
		}
	})
}

// skipRest marks what never started: because the stage was stopped, or because
// of what failed before.
func (s *stage) skipRest() {
	why := s.failed.cause
	if s.halt.on() {
		why = s.halt.cause
	}
	for i := range s.doc.Steps {
		if st := &s.doc.Steps[i]; st.Status == run.Pending && !s.follows(st) {
			st.Status, st.Cause = run.Skipped, because(why)
		}
	}
}

// close settles the stage's state and confirms it to the pipeline.
func (s *stage) close(ctx workflow.Context) (*run.Stage, error) {
	s.awaitCause(ctx)
	for i := range s.doc.Steps {
		st := &s.doc.Steps[i]
		if st.Status == run.Pending {
			st.Status, st.Cause = run.Skipped, because(s.halt.cause)
		}
		if st.Status == run.Cancelled && st.Cause == nil {
			st.Cause = s.halt.cause
		}
		if st.StartedAt == nil { // the others were measured as they ended
			s.measureStep(ctx, st)
		}
	}
	s.doc.Status, s.doc.Cause = run.Succeeded, nil
	switch {
	case s.halt.on():
		s.doc.Status, s.doc.Cause = s.halt.status, s.halt.cause
	case s.failed.status != "":
		s.doc.Status, s.doc.Cause = s.failed.status, s.failed.cause
	}
	if s.keptOut {
		s.doc.StartedAt = nil
	}
	now := workflow.Now(ctx)
	s.doc.EndedAt, s.doc.WaitingFor, s.doc.Outputs = &now, nil, s.outputs
	s.describe(ctx)
	publish(ctx, s.doc.Status)
	measureEnd(ctx, measure.Stage, s.doc.Status, s.doc.Cause, s.doc.StartedAt, s.doc.EndedAt)
	measureStop(ctx, measure.Stage, &s.halt)
	if err := closeAs(s.doc.Status, s.doc.Cause, s.doc); err != nil {
		return nil, err
	}
	return &s.doc, nil
}

// publish sets the search attribute by which runs and stages are found by state,
// and says the same in the trace.
func publish(ctx workflow.Context, status run.Status) {
	tracing.Note(ctx, tracing.AttrStatus, string(status))
	key := temporal.NewSearchAttributeKeyKeyword(AttrStatus)
	if err := workflow.UpsertTypedSearchAttributes(ctx, key.ValueSet(string(status))); err != nil {
		workflow.GetLogger(ctx).Warn("could not set the status search attribute", "error", err)
	}
}

// wait shows in the status what the stage waits for.
func (s *stage) wait(ctx workflow.Context, kind, name string) {
	now := workflow.Now(ctx)
	s.doc.WaitingFor = &run.WaitingFor{Kind: kind, Name: name, Since: &now}
}
