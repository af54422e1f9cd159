package activities

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.uber.org/zap"

	"belay.run/internal/dedup"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/spec"
	"belay.run/internal/task"
)

// usesNoop is the step that does nothing: it asks nobody for leave.
const usesNoop = "noop"

// Submitter runs light tasks within limits. An executor is one.
type Submitter interface {
	// Submit runs a task and returns what it came to. The error says that the
	// task was not taken: refused, after which it is worth asking again, or a
	// *task.Failure where it is wrong.
	Submit(ctx context.Context, t task.Task) (task.Result, error)
}

// LightConfig is what light steps need. All may be left out where no step asks
// for it.
type LightConfig struct {
	// Claims claims the keys of steps.
	Claims *Claims
	// Executor runs the steps, Heavy those that the router has sent to the host.
	Executor, Heavy Submitter
	// Secrets are read to keep them out of what steps hand over.
	Secrets secret.Provider
	// Logger defaults to one that says nothing.
	Logger *zap.Logger
}

// Light holds the steps that need neither a process nor a workspace.
type Light struct{ cfg LightConfig }

// NewLight returns Light.
func NewLight(cfg LightConfig) *Light {
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	return &Light{cfg}
}

// RunLight runs one attempt of a light step by the name of what it uses. It ends
// as RunStep does.
func (l *Light) RunLight(ctx context.Context, in LightInput) (*StepResult, error) {
	number := in.Attempts + int(activity.GetInfo(ctx).Attempt)
	traceStep(ctx, in.Node, number)
	if in.Uses == usesNoop && len(in.With) == 0 && in.Claim == nil {
		now := time.Now()
		return &StepResult{Attempt: number, StartedAt: now, EndedAt: now}, nil
	}
	a := &lightAttempt{light: l, in: in, progress: progress{now: Progress{Attempt: number, Since: time.Now(), Phase: PhaseRunning}}}
	a.res.Attempt = number
	defer a.progress.beating(ctx)()
	err := a.run(ctx)
	if stop := classify(context.Cause(ctx)); stop != nil && err != nil {
		err = stop
	}
	end := attempt{in: StepInput{Node: in.Node}, mask: a.mask, res: a.res}
	res, err := end.report(err)
	traceEnd(ctx, res)
	return res, err
}

// lightAttempt is one attempt of a light step.
type lightAttempt struct {
	light    *Light
	in       LightInput
	progress progress
	mask     *secret.Masker
	res      StepResult
}

// run takes the attempt through its order: the secrets that are kept out of what
// it says, the key, the task.
func (a *lightAttempt) run(ctx context.Context) error {
	values, err := loadSecrets(ctx, a.light.cfg.Secrets, a.in.Secrets)
	if err != nil {
		return err
	}
	if a.mask, err = secret.NewMasker(values...); err != nil {
		return failed(run.TriggerInvalid, "%v", err)
	}
	if a.in.Claim == nil {
		return a.use(ctx, nil)
	}
	a.progress.set(Progress{Phase: PhaseClaiming, Since: time.Now(), Name: a.in.Claim.Key.Name, Attempt: a.res.Attempt})
	grant, err := a.light.cfg.Claims.claimStep(ctx, a.in.Claim, a.progress.holder)
	if err != nil {
		if _, told := errors.AsType[*stepError](err); !told {
			err = &retryableError{err}
		}
		return err
	}
	if grant.note != "" {
		a.res.Notes = append(a.res.Notes, grant.note)
	}
	if grant.result != nil {
		a.res.StartedAt, a.res.ExitCode, a.res.DuplicateOf = time.Now(), grant.result.ExitCode, grant.result.DuplicateOf
		a.res.Outputs, err = declared(grant.result.Outputs, a.in.Outputs)
		return err
	}
	a.progress.set(Progress{Phase: PhaseRunning, Since: time.Now(), Attempt: a.res.Attempt})
	if grant.held == nil {
		return a.use(ctx, nil)
	}
	return a.kept(ctx, grant.held)
}

// kept runs the step while its claim is renewed, and settles that before Temporal
// is told: where the report is lost the next attempt finds the result.
func (a *lightAttempt) kept(ctx context.Context, held *dedup.Record) error {
	work, stop := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		a.light.cfg.Claims.keep(work, *held, func(cause run.Cause) { stop(&stopError{stopTakenOver, cause}) })
	})
	err := a.use(work, held)
	taken, lost := context.Cause(work).(*stopError) //nolint:errorlint // as it was given to stop
	stop(nil)
	renewing.Wait()
	switch {
	case lost:
		return taken
	case err != nil:
		return err
	}
	a.res.Claim = held
	if err := a.light.cfg.Claims.settleStep(ctx, a.in.Claim, held, &a.res); err != nil {
		a.light.cfg.Logger.Info("the claim of a step is settled later", zap.String("run", held.Owner.RunKey), zap.String("node", a.in.Node), zap.Int("attempt", a.res.Attempt), zap.Error(err))
	}
	return nil
}

// use does what the step is for.
func (a *lightAttempt) use(ctx context.Context, held *dedup.Record) error {
	a.res.StartedAt = time.Now()
	if a.in.Uses == usesNoop && len(a.in.With) == 0 {
		return nil
	}
	t, err := a.in.task(ctx, held, a.res.Attempt)
	if err != nil {
		return err
	}
	to := a.light.cfg.Executor
	if a.in.To == spec.ToHost {
		to = a.light.cfg.Heavy
	}
	if to == nil {
		return failed(run.TriggerInvalid, "uses: %s is not known to this worker", a.in.Uses)
	}
	r, err := submit(ctx, to, t, a.full)
	a.res.StartedAt = a.res.StartedAt.Add(r.Waited)
	if err != nil {
		return err
	}
	if r.Error != nil {
		return stepFailure(r.Error)
	}
	if r.Output.FellBack() {
		a.res.Notes = append(a.res.Notes, "its target is not well: the fallback of light_limits stood in")
	}
	return a.handOver(r.Output)
}

// full shows that the step waits for room.
func (a *lightAttempt) full(name string) {
	a.progress.set(Progress{Phase: PhaseFull, Since: time.Now(), Name: name, Attempt: a.res.Attempt})
}

// progress is what the heartbeats of a light step show.
type progress struct {
	mu  sync.Mutex
	now Progress
}

func (p *progress) set(now Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = now
}

func (p *progress) get() Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// holder shows who has the key that is waited for.
func (p *progress) holder(ref string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Holder = ref
}

// How soon and how often a light step sends heartbeats: in their answers it
// learns of a cancel. Most are over before the first.
const (
	firstLightBeat  = 200 * time.Millisecond
	lightBeatPeriod = 400 * time.Millisecond
)

// beating sends heartbeats until the function that it returns is called.
func (p *progress) beating(ctx context.Context) func() {
	return beatingEvery(ctx, firstLightBeat, lightBeatPeriod, func() []any { return []any{p.get()} })
}
