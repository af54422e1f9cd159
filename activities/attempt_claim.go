package activities

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"belay.run/internal/dedup"
	"belay.run/internal/measure"
	"belay.run/internal/run"
)

// claim claims the step's key, if it has one, and keeps the claim until release
// is called. Over means that the step need not run: another's result is its own.
func (a *attempt) claim() (over bool, release func(), err error) {
	nothing := func() {}
	in := a.in.Claim
	if in == nil {
		return false, nothing, nil
	}
	a.waitFor(in.Key.Name, "")
	since := time.Now()
	grant, err := a.steps.Claims.claimStep(a.ctx, in, func(holder string) { a.waitFor(in.Key.Name, holder) })
	if err != nil {
		return false, nothing, a.claimError(err)
	}
	a.steps.Meter.Waited(measure.Claim, time.Since(since))
	if grant.note != "" {
		a.note("%s", grant.note)
	}
	if grant.result != nil {
		return true, nothing, a.take(grant.result)
	}
	a.setPhase(PhaseWaiting)
	if grant.held == nil {
		return false, nothing, nil
	}
	a.held, a.res.Claim = grant.held, grant.held
	return false, a.keepClaim(), nil
}

// claimError tells what stopped the attempt, and what its claim came to, from a
// fault that may pass.
func (a *attempt) claimError(err error) error {
	if stop := a.stopped(nil); stop != nil {
		return stop
	}
	if step, ok := errors.AsType[*stepError](err); ok {
		return step
	}
	return &retryableError{err}
}

// take makes a recorded result the attempt's own.
func (a *attempt) take(from *StepResult) (err error) {
	now := time.Now()
	a.res.StartedAt, a.res.ExitCode, a.res.DuplicateOf = now, from.ExitCode, from.DuplicateOf
	a.res.Outputs, err = declared(from.Outputs, a.in.Step.Outputs)
	return err
}

// keepClaim renews the claim until the function that it returns is called. An
// attempt whose claim is another's must end: it would do the work twice.
func (a *attempt) keepClaim() func() {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(a.ctx))
	var renewing sync.WaitGroup
	renewing.Go(func() {
		a.steps.Claims.keep(ctx, *a.held, func(cause run.Cause) { a.stop(&stopError{stopTakenOver, cause}) })
	})
	return func() {
		cancel(nil)
		renewing.Wait()
	}
}

// settleBound bounds the settlement of a claim by the attempt that completed.
const settleBound = 5 * time.Second

// settleClaim ends the claim of a step that has completed, before Temporal is
// told so: where that report is lost, since the worker dies or Temporal does not
// answer for longer than a heartbeat may, the next attempt finds the result and
// does not do the work again. What cannot be settled now is when the node ends.
func (a *attempt) settleClaim() {
	if a.held == nil {
		return
	}
	if err := a.steps.Claims.settleStep(a.ctx, a.in.Claim, a.held, &a.res); err != nil {
		a.steps.Logger.Info("the claim of a step is settled later", zap.String("run", a.key.runKey), zap.String("node", a.in.Node), zap.Int("attempt", a.number), zap.Error(err))
	}
}

// settleStep settles a claim of a step that has completed, also when ctx has ended.
func (c *Claims) settleStep(ctx context.Context, of *Claiming, held *dedup.Record, res *StepResult) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleBound)
	defer cancel()
	_, err := c.settle(ctx, &SettleInput{
		Claiming: *of, Record: held,
		Result: dedup.Result{Status: run.Succeeded, ExitCode: res.ExitCode, Outputs: res.Outputs},
	})
	return err
}

// once adds what lets others know this step again: the idempotency key, which is
// the same over all attempts, and the fencing token, which grows with every
// claim. There is no token where there is no claim.
func (a *attempt) once(env environ) {
	if a.held == nil {
		env["BELAY_IDEMPOTENCY_KEY"] = dedup.RunIdempotencyKey(a.key.runKey, a.key.node)
		return
	}
	env["BELAY_IDEMPOTENCY_KEY"] = dedup.IdempotencyKey(*a.held)
	env["BELAY_FENCING_TOKEN"] = strconv.FormatInt(a.held.Token, 10)
}

// waitFor shows that the attempt waits for a key.
func (a *attempt) waitFor(key, holder string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase.Phase == PhaseClaiming && a.phase.Holder == holder {
		return
	}
	a.phase = Progress{Phase: PhaseClaiming, Since: time.Now(), Name: key, Holder: holder}
}
