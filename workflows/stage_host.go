package workflows

import (
	"errors"
	"fmt"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/expr"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// needsHost reports whether anything of the stage needs a workspace. A stage of
// light steps alone costs no host.
func (s *stage) needsHost() bool {
	return len(s.spec.Artifacts)+len(s.spec.Services)+len(s.spec.Resources) > 0 || anyRuns(s.spec.Steps) || anyRuns(s.spec.Rollback) || anyRuns(s.spec.Finally)
}

func anyRuns(steps []spec.Step) bool {
	for i := range steps {
		here := steps[i].Uses != "" && destination(&steps[i]) == spec.ToHost
		if here || len(steps[i].Run) > 0 || anyRuns(steps[i].Parallel) {
			return true
		}
	}
	return false
}

// takeHost finds a host with the stage's label and fills a workspace there. The
// cause it returns is nil where that went well.
func (s *stage) takeHost(ctx workflow.Context) *run.Cause {
	label, err := expr.String(s.spec.RunsOn, s.scope())
	if err != nil {
		return &run.Cause{Trigger: run.TriggerInvalid, Source: s.doc.Node, Message: fmt.Sprintf("runs_on: %v", err)}
	}
	s.label = label
	queue := run.StepsQueue(label)
	s.wait(ctx, "host", queue)
	s.describe(ctx)
	bound, err := s.bind(ctx, queue)
	s.doc.WaitingFor = nil
	if err != nil {
		return s.activityCause(err)
	}
	s.host, s.doc.Host = bound, bound.Host
	s.hasWorkspace()
	s.wait(ctx, "workspace", bound.Host)
	var steps *activities.Steps
	opts := prepareOptions(bound.Queue, s.spec.Timeout, "fills the workspace")
	err = s.onHost(ctx, opts, nil, steps.Prepare, activities.PrepareInput{
		Owner: s.owner, SourceRef: s.in.SourceRef, Source: s.in.Source, Artifacts: s.in.Artifacts,
	}, nil)
	s.doc.WaitingFor = nil
	if err != nil {
		return s.activityCause(err)
	}
	if cause := s.startServices(ctx); cause != nil {
		return cause
	}
	return s.takeResources(ctx)
}

// bind has a host take the stage, however long it takes until there is one.
// Finally steps that lost theirs wait only for hosts that live: who cancels a
// run whose hosts are gone is not to wait for nothing.
func (s *stage) bind(ctx workflow.Context, queue string) (*activities.Binding, error) {
	opts := bindOptions(queue)
	if s.moved {
		opts.ScheduleToStartTimeout = hostPickup
	}
	for {
		var bound activities.Binding
		var binder *activities.Binder
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), binder.Bind, s.owner).Get(ctx, &bound)
		if _, late := notTaken(err); !late {
			return &bound, err
		}
		alive, err := s.queueAlive(ctx, queue)
		if err != nil {
			return nil, err
		}
		if !alive {
			return nil, fmt.Errorf("no live host takes stages from %s", queue)
		}
	}
}

// notTaken reports whether an activity was not taken from its queue in time.
func notTaken(err error) (*temporal.TimeoutError, bool) {
	timeout, ok := errors.AsType[*temporal.TimeoutError](err)
	return timeout, ok && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// saveArtifacts stores what the stage declares for those that need it.
func (s *stage) saveArtifacts(ctx workflow.Context) *run.Cause {
	s.wait(ctx, "artifacts", s.host.Host)
	defer func() { s.doc.WaitingFor = nil }()
	var steps *activities.Steps
	var key string
	opts := prepareOptions(s.host.Queue, s.spec.Timeout, "saves artifacts")
	err := s.onHost(ctx, opts, nil, steps.SaveArtifacts, activities.SaveInput{Owner: s.owner, Paths: s.spec.Artifacts}, &key)
	if err != nil {
		return s.activityCause(err)
	}
	s.doc.Artifacts = key
	return nil
}

// activityCause is the cause of a stage whose own activity failed. One that was
// cancelled is the cancel of the stage, which knows why.
func (s *stage) activityCause(err error) *run.Cause {
	out := readOutcome(s.doc.Node, nil, err)
	if out.status == run.Cancelled {
		if s.halt.on() {
			return s.halt.cause
		}
		return &run.Cause{Trigger: run.TriggerUser, Source: s.doc.Node}
	}
	return out.cause
}

// onHost runs an activity on the stage's host. When the host does not take it in
// time, one looks whether it lives: a busy host is given the activity again,
// with the attempts already made; a lost one ends in [activities.ErrLost].
// again, where it is set, makes options and input anew for that.
func (s *stage) onHost(ctx workflow.Context, opts workflow.ActivityOptions, again func(made int) (workflow.ActivityOptions, any),
	activity, input, result any,
) error {
	host := s.host
	for {
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), activity, input).Get(ctx, result)
		timeout, late := notTaken(err)
		if !late {
			return err
		}
		alive, err := s.queueAlive(ctx, host.Queue)
		if err != nil {
			return err
		}
		if !alive {
			s.hostLost = s.hostLost || s.host == host
			return fmt.Errorf("host %s: %w", host.Host, activities.ErrLost)
		}
		if again != nil {
			opts, input = again(attemptsMade(timeout))
		}
	}
}

// hostAlive looks whether the stage's host lives.
func (s *stage) hostAlive(ctx workflow.Context) (bool, error) {
	return s.queueAlive(ctx, s.host.Queue)
}

// queueAlive looks whether anybody takes activities from a queue.
func (s *stage) queueAlive(ctx workflow.Context, queue string) (alive bool, err error) {
	var control *activities.Control
	look := workflow.WithActivityOptions(ctx, aliveOptions())
	err = workflow.ExecuteActivity(look, control.HostAlive, queue).Get(ctx, &alive)
	return alive, err
}

// attemptsMade is how many attempts lie behind an activity that was waiting to
// be started once more: its last failure tells.
func attemptsMade(timeout *temporal.TimeoutError) int {
	var app *temporal.ApplicationError
	var last activities.StepResult
	if errors.As(timeout.Unwrap(), &app) && details(app, &last) {
		return last.Attempt
	}
	return 0
}

// release gives back what the stage holds, then the workspace, in time of its own,
// also after a cancel, when what the steps held is given back or has leaked. What a lost host holds is swept
// when it returns.
func (s *stage) release(ctx workflow.Context) {
	d, _ := workflow.NewDisconnectedContext(ctx)
	if err := workflow.Await(d, func() bool { return s.ending == 0 && s.releasing == 0 }); err != nil {
		workflow.GetLogger(d).Warn("stopped waiting for processes to be ended", "error", err)
	}
	defer func() {
		for _, give := range s.slotsLater {
			give(d)
		}
	}()
	defer s.markWorkspaces(d)
	if s.host == nil {
		return
	}
	s.giveResources(d)
	if s.hostLost {
		s.lostWorkspace()
		return
	}
	s.wait(d, "release", s.host.Host)
	var steps *activities.Steps
	opts := releaseOptions(s.host.Queue, s.in.ReleaseTimeout)
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(d, opts), steps.Release, s.owner).Get(d, nil)
	if err != nil {
		s.doc.Notes = append(s.doc.Notes, fmt.Sprintf("the workspace on host %s was not removed; the host sweeps it later: %s",
			s.host.Host, plainly(err)))
		s.gaveWorkspace(plainly(err))
		return
	}
	s.gaveWorkspace("")
}
