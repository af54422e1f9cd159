package activities

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/dedup"
	"belay.run/internal/logs"
	"belay.run/internal/measure"
	"belay.run/internal/proc"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/workspace"
)

// attempt is one attempt of a step on this host.
type attempt struct {
	steps  *Steps
	in     StepInput
	key    nodeKey
	number int // over all activities of the step
	first  bool
	beat   func(context.Context, Progress) error

	ctx  context.Context //nolint:containedctx // outlives the activity's, which a failed heartbeat may cancel
	stop func(*stopError)
	// stopEarly is stop by somebody other than Temporal or the attempt itself;
	// told is closed when one of those has asked for it too.
	stopEarly func(*stopError)
	early     atomic.Bool
	// toldAt is when it was first told to stop, as Unix time in nanoseconds.
	toldAt atomic.Int64
	told   chan struct{}

	dirs workspace.Dirs
	temp string
	log  *logs.Writer
	mask *secret.Masker
	res  StepResult
	// held is the claim of a step that has a key.
	held *dedup.Record

	// values are all secrets that the step is given, lent the variables that
	// come with what it holds.
	values []secret.Value
	lent   []map[string]string
	// issued are those of the secrets that were issued for it, or for its stage.
	issued []secret.Value
	// taking is set where the attempt is to take what a stage holds.
	taking *stageHold
	// earlier and ended are what earlier attempts and this one held.
	earlier, ended []resource.Entry
	// ran: a process was started; notGone, tempLeft say what is left of it.
	ran               bool
	notGone, tempLeft string

	printed atomic.Int64 // bytes of output so far

	mu      sync.Mutex
	heard   time.Time // when Temporal was last in touch with the attempt
	phase   Progress
	process *proc.Process
	crowd   *crowd // nil, or with whom the process is ended
	// services says how those of the stage ended that did.
	services []string
	// holdings are what the attempt holds, in the order in which it came by it.
	holdings []*holding
}

// RunStep runs one attempt of a step: process slot, directories, secrets, log,
// process, outputs. It returns how it ended; a failure is an application error
// of the cause's trigger with the [StepResult] in its details, retryable where
// the step's retry says so; a cancel is confirmed when the processes are gone.
func (s *Steps) RunStep(ctx context.Context, in StepInput) (*StepResult, error) {
	return s.attempt(ctx, in, (*attempt).run)
}

// attempt makes an attempt, which is what do does.
func (s *Steps) attempt(ctx context.Context, in StepInput, do func(*attempt) error) (*StepResult, error) {
	unstick(ctx, s.Client, s.Namespace)
	info := activity.GetInfo(ctx)
	traceStep(ctx, in.Node, in.Attempts+int(info.Attempt))
	a := &attempt{
		steps: s, in: in, key: nodeKey{in.Owner.RunKey, in.Node},
		number: in.Attempts + int(info.Attempt), first: in.Attempts+int(info.Attempt) == 1,
		phase: Progress{Phase: PhaseWaiting, Since: time.Now()},
		heard: handedOver(info.StartedTime),
	}
	a.beat = func(ctx context.Context, p Progress) error {
		return s.Client.RecordActivityHeartbeat(ctx, info.TaskToken, p)
	}
	var cancel context.CancelCauseFunc
	a.ctx, cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	a.told = make(chan struct{})
	tell := sync.OnceFunc(func() { close(a.told) })
	end := func(e *stopError) { a.toldAt.CompareAndSwap(0, time.Now().UnixNano()); cancel(e) }
	a.stopEarly = func(e *stopError) { a.early.Store(true); end(e) }
	a.stop = func(e *stopError) { end(e); tell() }
	a.res.Attempt = a.number

	done := make(chan struct{})
	var touch sync.WaitGroup
	touch.Go(func() { a.keepInTouch(ctx, done) })
	err := do(a) // in its own context, which outlives the activity's
	if err == nil {
		a.settleClaim()
	} else {
		a.measureStop(err)
		a.awaitTold()
	}
	s.leave(a)
	close(done)
	touch.Wait()
	res, err := a.report(err)
	traceEnd(ctx, res)
	return res, err
}

// run takes the attempt through its order. Everything taken is given back when
// it returns.
func (a *attempt) run() (err error) {
	if cause, ended := a.steps.enter(a); ended {
		return &stopError{kind: stopCancelled, cause: cause}
	}
	if err := a.underHold(); err != nil {
		return err
	}
	if err := a.endEarlier(); err != nil {
		return err
	}
	a.releaseEarlier()
	over, release, err := a.claim()
	defer release()
	if over || err != nil {
		return err
	}
	defer a.releaseAll(0)
	if err := a.acquire(a.locks(), environ{}); err != nil {
		return err
	}
	a.setPhase(PhaseWaiting)
	tenant, since := a.in.Vars["BELAY_TENANT"], time.Now()
	if err := a.steps.slots.Acquire(a.ctx, tenant); err != nil {
		return a.stopped(err)
	}
	defer a.steps.slots.Release(tenant)
	a.steps.Meter.Waited(measure.Process, time.Since(since))
	a.steps.Meter.Running(1)
	defer a.steps.Meter.Running(-1)
	a.setPhase(PhaseRunning)
	a.res.StartedAt = time.Now()
	if err := a.makeDirs(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.removeTemp()) }()
	env, err := a.environment()
	if err != nil {
		return err
	}
	return a.logged(func() error {
		defer a.releaseAll(len(a.holdings))
		if err := a.acquire(a.others(), env); err != nil {
			return err
		}
		return a.commands(env.list())
	})
}

// endEarlier ends what an earlier attempt left, which may have outlived its worker.
func (a *attempt) endEarlier() error {
	if a.first {
		return nil
	}
	err := a.steps.Proc.EndNode(a.ctx, processNode(a.key.runKey, a.key.node))
	if errors.Is(err, proc.ErrNotProved) {
		a.note("%v", err)
	} else if err != nil {
		return a.stopped(&retryableError{fmt.Errorf("ending what an earlier attempt left: %w", err)})
	}
	return nil
}

// logged opens the attempt's log around f. A log that could not be kept whole, or
// at all, is a note and no failure of the step.
func (a *attempt) logged(f func() error) error {
	var err error
	a.log, err = a.steps.Logs.Open(a.ctx, logs.Step{RunKey: a.key.runKey, Node: a.key.node, Attempt: a.number},
		logs.Options{Limit: a.in.Step.OutputLimit})
	if err != nil {
		return a.stopped(&retryableError{err})
	}
	err = f()
	if cause := a.causeOf(err); cause != nil {
		a.log.System(a.mask.String(cause.String()))
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), logCloseTimeout)
	defer cancel()
	sum, closeErr := a.log.Close(closing)
	a.steps.Meter.Logged(sum.Bytes, sum.Dropped)
	switch {
	case closeErr != nil:
		a.note("the log is not complete: %v", closeErr)
	case sum.Dropped > 0:
		a.note("%d bytes of output over the limit were not kept", sum.Dropped)
	}
	return err
}

// logCloseTimeout bounds the writing of what is left of a log.
const logCloseTimeout = 30 * time.Second

// stopped is what stopped the attempt, if something did, else err.
func (a *attempt) stopped(err error) error {
	if stop, ok := errors.AsType[*stopError](context.Cause(a.ctx)); ok {
		return stop
	}
	return err
}

// report turns the end of the attempt into what Temporal is told.
func (a *attempt) report(err error) (*StepResult, error) {
	a.res.EndedAt = time.Now()
	a.reportResources()
	a.res.Services = a.services
	if a.res.StartedAt.IsZero() {
		a.res.StartedAt = a.res.EndedAt
	}
	if err == nil {
		return &a.res, nil
	}
	cause := a.causeOf(err)
	cause.Source = a.in.Node
	cause.Message = a.mask.String(cause.Message)
	a.res.Cause = cause
	a.res.Outputs = nil
	var stop *stopError
	var retry *retryableError
	switch {
	case errors.As(err, &stop) && stop.kind == stopCancelled:
		return nil, temporal.NewCanceledError(a.res)
	case errors.As(err, &stop) && (stop.kind == stopShutdown || stop.kind == stopOperator), errors.As(err, &retry):
		return nil, failRetryable(*cause, a.res)
	}
	return nil, fail(*cause, a.res)
}

// stepError is a failure of the attempt with its cause.
type stepError struct{ cause run.Cause }

func (e *stepError) Error() string { return e.cause.String() }

// retryableError marks a failure on which the step may be tried again.
type retryableError struct{ error }

func (e *retryableError) Unwrap() error { return e.error }

func failed(trigger run.Trigger, format string, args ...any) error {
	return &stepError{run.Cause{Trigger: trigger, Message: fmt.Sprintf(format, args...)}}
}

// causeOf is the cause an error of the attempt carries; what carries none is a
// fault of the environment.
func (a *attempt) causeOf(err error) *run.Cause {
	if err == nil {
		return nil
	}
	var stop *stopError
	var step *stepError
	switch {
	case errors.As(err, &stop):
		cause := stop.cause
		return &cause
	case errors.As(err, &step):
		cause := step.cause
		return &cause
	}
	return &run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: err.Error()}
}

func (a *attempt) note(format string, args ...any) {
	a.res.Notes = append(a.res.Notes, fmt.Sprintf(format, args...))
}

// makeDirs makes the attempt's own temporary directory, new for each attempt.
func (a *attempt) makeDirs() error {
	a.dirs = a.steps.Host.Dirs(a.key.runKey, a.in.Owner.Node)
	temp, err := os.MkdirTemp(a.dirs.Temp, "step-")
	if err != nil {
		return &retryableError{fmt.Errorf("making a temporary directory: %w", err)}
	}
	a.temp = temp
	if err := os.Mkdir(a.ownTemp(), 0o700); err != nil {
		return &retryableError{fmt.Errorf("making a temporary directory: %w", err)}
	}
	return nil
}

// ownTemp is the TMPDIR of the step, scriptFile where a command's script lies.
func (a *attempt) ownTemp() string { return filepath.Join(a.temp, "tmp") }

func (a *attempt) scriptFile(i int) string {
	return filepath.Join(a.temp, fmt.Sprintf("script-%d", i+1))
}

// removeTemp removes it: in a few calls where there is nothing in it that the
// step did not get from here, else with the care that unknown trees need.
func (a *attempt) removeTemp() error {
	// What is not there, or cannot be removed, shows below: only an empty
	// directory goes.
	for i := range a.in.Step.Run {
		_ = os.Remove(a.scriptFile(i))
	}
	_ = os.Remove(a.outputFile())
	_ = os.Remove(a.ownTemp())
	if os.Remove(a.temp) == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), logCloseTimeout)
	defer cancel()
	if err := a.steps.Host.Remove(ctx, a.temp); err != nil {
		a.tempLeft = err.Error()
		a.note("a temporary directory was not removed; it goes with the workspace: %v", err)
	}
	return nil
}

func (a *attempt) setPhase(phase string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.phase = Progress{Phase: phase, Since: time.Now()}
}

func (a *attempt) progress() Progress {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.phase
	p.Attempt, p.Resources, p.Services = a.number, a.heldNow(), slices.Clone(a.services)
	return p
}

// keepAlive takes note that Temporal has heard of the attempt, and resets the
// dead-man timer of the process that runs, if one does.
func (a *attempt) keepAlive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = time.Now()
	if a.process != nil {
		a.process.KeepAlive()
	}
}
