package workflows

import (
	"cmp"
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/audit"
	"belay.run/internal/dedup"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/tracing"
)

// claim is what a run with a key knows of it. A nil claim is that of a run
// without one, for which nothing is done.
type claim struct {
	dedup *spec.Dedup
	in    activities.Claiming
	// held is the run's own claim, nil while it has none.
	held *dedup.Record
	// of is the run that stands for this one, where it is a duplicate: rejected
	// because of it, or ended as it did. Well: it completed.
	of       *dedup.Owner
	rejected bool
	well     bool
}

// newClaim evaluates the run's key: that of the file, or the one that its start
// gave.
func (p *pipeline) newClaim(ctx workflow.Context) error {
	if p.in.DedupKey != "" {
		given := spec.DefaultDedup(p.in.DedupKey)
		if own := p.plan.Dedup; own != nil {
			key := given.Key
			*given = *own
			given.Key, given.Env = key, nil
		}
		p.plan.Dedup = given
	}
	d := p.plan.Dedup
	if d == nil {
		return nil
	}
	key, err := p.plan.DedupKey(p.doc.Tenant, p.doc.Project)
	if err != nil {
		return err
	}
	fingerprint, err := p.plan.Fingerprint()
	if err != nil {
		return err
	}
	p.doc.DedupKey = key
	p.claim = &claim{dedup: d, in: activities.Claiming{
		Key:      dedup.Key{Tenant: p.doc.Tenant, Project: p.doc.Project, Pipeline: p.doc.Pipeline, Name: key},
		Owner:    p.owner(),
		Request:  p.request(),
		Delivery: p.in.Delivery, Pipeline: p.doc.Pipeline, Fingerprint: fingerprint,
		OnDuplicate: cmp.Or(p.in.OnDuplicate, d.OnDuplicate), OnMismatch: d.OnMismatch, Rerun: p.in.Rerun,
		Risk: p.plan.Risk, ClaimTimeout: d.ClaimTimeout, Window: d.Window, Timeout: p.plan.Timeout,
	}}
	err = workflow.SetQueryHandler(ctx, activities.ClaimQuery, func() (*dedup.Record, error) { return p.claim.held, nil })
	if err != nil {
		return fmt.Errorf("setting the claim query: %w", err)
	}
	return nil
}

func (p *pipeline) owner() dedup.Owner {
	return dedup.Owner{RunKey: p.doc.RunKey, WorkflowID: p.doc.ID, RunID: p.doc.RunID}
}

// request is who asked for the run. One that bears no id of its own, such as a
// start from Temporal's UI, is the only one of its kind.
func (p *pipeline) request() dedup.Request {
	return dedup.Request{ID: cmp.Or(p.in.RequestID, p.doc.RunKey), Sender: p.in.Sender, At: p.in.RequestedAt}
}

// takeClaim claims the run's key, and does about a duplicate what the file says.
// A run that does not get the claim is stopped, and runs nothing.
func (p *pipeline) takeClaim(ctx workflow.Context) {
	if p.claim == nil || p.halt.on() {
		return
	}
	if cause := p.contend(ctx); cause != nil {
		p.halt.stop(cause.Trigger.Status(), cause)
	}
	awaitHalt(ctx, &p.halt)
}

// contend claims until the run has the claim, or is known not to get it. The
// cause it returns says what went wrong; a duplicate has gone right.
func (p *pipeline) contend(ctx workflow.Context) *run.Cause {
	in := activities.ClaimRunInput{Claiming: p.claim.in, Began: workflow.GetInfo(ctx).WorkflowStartTime}
	for {
		var res activities.ClaimResult
		var claims *activities.Claims
		opts := claimOptions(p.claim.dedup.ClaimTimeout)
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), claims.ClaimRun, in).Get(ctx, &res)
		if err != nil {
			return unlessCancelled(err)
		}
		p.noteClaim(ctx, &res)
		switch res.Answer {
		case "":
			if res.Unchecked == "" {
				p.claim.held = &res.Record
			}
			return nil
		case audit.Attached:
			again, cause := p.attach(ctx, &res.Record)
			if !again {
				return cause
			}
		case audit.Replaced:
			by, err := p.supersede(ctx, &res.Record)
			if by != nil || err != nil {
				return by
			}
			in.Again = true
		case audit.Rejected, audit.Mismatch:
			p.claim.rejected = true
			p.endAs(&res.Record.Owner, res.Record.State == dedup.Completed, rejection(&res))
			return nil
		default:
			p.endAs(&res.Record.Owner, res.Record.State == dedup.Completed, res.Record.Result.Cause)
			return nil
		}
	}
}

// noteClaim notes what a person should know about the claim.
func (p *pipeline) noteClaim(ctx workflow.Context, res *activities.ClaimResult) {
	tracing.Note(ctx, tracing.AttrDedup, decided(res))
	if res.Unchecked != "" {
		p.doc.Notes = append(p.doc.Notes, res.Unchecked)
	}
	if res.Mismatch && res.Answer != "" {
		p.doc.Notes = append(p.doc.Notes, fmt.Sprintf("a duplicate of %s by its key, but with other inputs", nameOf(&res.Record.Owner)))
	}
}

// decided is what was decided about the key, in a word.
func decided(res *activities.ClaimResult) string {
	switch {
	case res.Unchecked != "":
		return string(audit.Unchecked)
	case res.Answer != "":
		return string(res.Answer)
	}
	return string(res.Decision)
}

// rejection is the cause of a run that is refused.
func rejection(res *activities.ClaimResult) *run.Cause {
	message := fmt.Sprintf("%s has key %q: %s", nameOf(&res.Record.Owner), res.Record.Key.Name, res.Record.State)
	if res.Answer == audit.Mismatch {
		message += ", with other inputs"
	}
	return &run.Cause{Trigger: run.TriggerInvalid, Message: message}
}

// nameOf is a run as every command takes it.
func nameOf(o *dedup.Owner) string { return o.WorkflowID + "@" + o.RunID }

// endAs makes the run a duplicate of another.
func (p *pipeline) endAs(of *dedup.Owner, well bool, cause *run.Cause) {
	p.claim.of, p.claim.well = of, well
	p.doc.DuplicateOf, p.doc.DuplicateRunID, p.doc.Rejected = of.WorkflowID, of.RunID, p.claim.rejected
	p.nodes = nil
	p.halt.stop(run.Duplicate, cause)
}

// attach waits for the end of the run that has the key, and takes it over. Again
// says that there is none to take over: that run had been ended from outside
// before this one was asked for, and has only unwound since.
func (p *pipeline) attach(ctx workflow.Context, record *dedup.Record) (again bool, cause *run.Cause) {
	defer p.waitForClaim(ctx, record)()
	var end activities.RunEnd
	var claims *activities.Claims
	opts := awaitOptions("waits for the run that has the key")
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), claims.AwaitRun, record.Owner).Get(ctx, &end)
	if err != nil {
		return false, unlessCancelled(err)
	}
	if end.Cut != nil && end.Cut.Before(workflow.GetInfo(ctx).WorkflowStartTime) {
		return true, nil
	}
	of := record.Owner
	of.RunID = end.RunID
	p.endAs(&of, end.Status.OK() || end.Status == run.Skipped, end.Cause)
	return false, nil
}

// supersede has older runs with the key make way. The cause it returns is that
// of a run which has to make way itself; an error ends the wait without one where
// the run was cancelled.
func (p *pipeline) supersede(ctx workflow.Context, record *dedup.Record) (*run.Cause, error) {
	defer p.waitForClaim(ctx, record)()
	publish(ctx, activities.PendingStatus)
	var res activities.Superseded
	var claims *activities.Claims
	opts := awaitOptions("has older runs with the key make way")
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), claims.Supersede, activities.SupersedeInput{
		Claiming: p.claim.in, Holder: record.Owner, Began: workflow.GetInfo(ctx).WorkflowStartTime,
	}).Get(ctx, &res)
	switch {
	case err != nil:
		return unlessCancelled(err), err
	case res.By != nil:
		return &run.Cause{Trigger: run.TriggerSuperseded, Message: "by " + nameOf(res.By)}, nil
	}
	publish(ctx, run.Running)
	return nil, nil
}

// waitForClaim shows that the run waits for a claim, until the function that it
// returns is called.
func (p *pipeline) waitForClaim(ctx workflow.Context, record *dedup.Record) func() {
	now := workflow.Now(ctx)
	p.doc.WaitingFor = &run.WaitingFor{Kind: "claim", Name: p.doc.DedupKey, Since: &now, Holder: nameOf(&record.Owner)}
	p.describe(ctx)
	return func() { p.doc.WaitingFor = nil }
}

// settleClaim ends the run's claim as the run ends. Where that cannot be said,
// others find out that the run is over.
func (p *pipeline) settleClaim(ctx workflow.Context) {
	if p.claim == nil || p.claim.held == nil {
		return
	}
	var claims *activities.Claims
	var res activities.Settled
	opts := settleOptions(p.doc.Status, p.claim.dedup.ClaimTimeout)
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), claims.SettleRun, activities.SettleInput{
		Claiming: p.claim.in, Record: p.claim.held, Took: workflow.Now(ctx).Sub(*p.doc.StartedAt),
		Result: dedup.Result{Status: p.doc.Status, Cause: p.doc.Cause, Summary: p.summary()},
	}).Get(ctx, &res)
	if err != nil {
		res.Note = fmt.Sprintf("the claim of key %q could not be settled; others see that the run is over: %v", p.doc.DedupKey, err)
	}
	if res.Note != "" {
		p.doc.Notes = append(p.doc.Notes, res.Note)
	}
}

// summary says in a line how the stages of the run ended.
func (p *pipeline) summary() string {
	var d describer
	for _, n := range p.nodes {
		for _, l := range n.legs {
			d.add(l.doc.Node, l.doc.Status, l.doc.Cause)
		}
	}
	return d.counted()
}

// closeDuplicate is what the workflow of a duplicate returns: it closes like its
// original. Were that of a failure to complete, Temporal would refuse every
// retry that is meant.
func (c *claim) closeDuplicate(doc *run.Document) error {
	if c.well {
		return nil
	}
	message := "a duplicate of " + nameOf(c.of)
	if doc.Cause != nil {
		message += ": " + doc.Cause.String()
	}
	return temporal.NewApplicationErrorWithOptions(message, run.ErrorDuplicate,
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{doc}})
}
