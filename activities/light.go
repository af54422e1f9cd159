package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/dedup"
	"belay.run/internal/run"
)

// Light holds the steps that need neither a process nor a workspace.
type Light struct {
	claims *Claims
}

// NewLight returns Light; claims may be nil where no step has a key.
func NewLight(claims *Claims) *Light { return &Light{claims: claims} }

// RunLight runs one light step by the name of what it uses.
func (l *Light) RunLight(ctx context.Context, in LightInput) (*StepResult, error) {
	if in.Claim == nil {
		return l.use(ctx, in)
	}
	return l.claimed(ctx, in)
}

func (*Light) use(ctx context.Context, in LightInput) (*StepResult, error) {
	if in.Uses == "noop" {
		now := time.Now()
		return &StepResult{Attempt: int(activity.GetInfo(ctx).Attempt), StartedAt: now, EndedAt: now}, nil
	}
	return nil, fail(run.Cause{Trigger: run.TriggerInvalid, Source: in.Node, Message: "uses: " + in.Uses + " is not known to this worker"})
}

// claimed runs a step that has a key, under its claim.
func (l *Light) claimed(ctx context.Context, in LightInput) (*StepResult, error) {
	progress := progress{now: Progress{Phase: PhaseClaiming, Since: time.Now(), Name: in.Claim.Key.Name}}
	defer progress.beating(ctx)()
	grant, err := l.claims.claimStep(ctx, in.Claim, progress.holder)
	res := grant.result
	if err == nil && res != nil {
		res.Attempt, res.StartedAt = int(activity.GetInfo(ctx).Attempt), time.Now()
		res.EndedAt = res.StartedAt
		res.Outputs, err = declared(res.Outputs, in.Outputs)
	}
	switch {
	case ctx.Err() != nil:
		return nil, temporal.NewCanceledError()
	case err != nil:
		return nil, l.failure(in.Node, err)
	case res == nil:
		progress.set(Progress{Phase: PhaseRunning, Since: time.Now()})
		if res, err = l.timed(ctx, in, grant.held); err != nil {
			return nil, err
		}
	}
	if grant.note != "" {
		res.Notes = append(res.Notes, grant.note)
	}
	return res, nil
}

// timed runs a step within its timeout, which counts from here.
func (l *Light) timed(ctx context.Context, in LightInput, held *dedup.Record) (*StepResult, error) {
	timeout := &stepError{run.Cause{
		Trigger: run.TriggerStepTimeout, Message: fmt.Sprintf("the step's timeout of %s is over", in.Timeout),
	}}
	work, cancel := context.WithTimeoutCause(ctx, in.Timeout, timeout)
	defer cancel()
	res, err := l.kept(work, in, held)
	if err != nil && errors.Is(context.Cause(work), timeout) {
		return nil, l.failure(in.Node, timeout)
	}
	return res, err
}

// kept runs a step while its claim is renewed.
func (l *Light) kept(ctx context.Context, in LightInput, held *dedup.Record) (*StepResult, error) {
	if held == nil {
		return l.use(ctx, in)
	}
	work, stop := context.WithCancelCause(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		l.claims.keep(work, *held, func(cause run.Cause) { stop(&stepError{cause}) })
	})
	res, err := l.use(work, in)
	taken, lost := context.Cause(work).(*stepError) //nolint:errorlint // as it was given to stop
	stop(nil)
	renewing.Wait()
	switch {
	case lost:
		return nil, l.failure(in.Node, taken)
	case err != nil:
		return nil, err
	}
	res.Claim = held
	return res, nil
}

// failure is the error of a step that could not be claimed, or lost its claim.
func (*Light) failure(node string, err error) error {
	if _, ok := errors.AsType[*stepError](err); !ok {
		err = &retryableError{err}
	}
	a := attempt{in: StepInput{Node: node}}
	_, err = a.report(err)
	return err
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

// beating sends heartbeats until the function that it returns is called.
func (p *progress) beating(ctx context.Context) func() {
	return beatingWith(ctx, func() []any { return []any{p.get()} })
}
