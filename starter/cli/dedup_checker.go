package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"belay.run/internal/dedup"
	"belay.run/internal/durations"
	"belay.run/internal/liveness"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/starter/runs"
)

// What check finds, beside the states of claims, and what would be done.
const (
	stateFree        = "free"
	stateDead        = "dead"
	stateRedelivered = "redelivered"

	wouldRun     = "run"
	wouldAnswer  = "answer"
	wouldAttach  = "attach"
	wouldReject  = "reject"
	wouldReplace = "replace"
)

// checker answers questions without changing anything.
type checker struct {
	claims    *dedup.Claims
	alive     func(context.Context, dedup.Owner) liveness.Answer
	durations *durations.Durations
	runs      *runs.Client
	now       time.Time
}

// check fills in the answer: the request id first, since it means the run that
// it began whatever became of it, then the claim, then what Temporal knows.
func (c *checker) check(ctx context.Context, q *question, doc *checkDoc) error {
	if known, err := c.redelivered(ctx, q, doc); known || err != nil || q.key.Name == "" {
		return err
	}
	r, err := c.claims.Lookup(ctx, q.key)
	if err != nil {
		return err
	}
	if r == nil {
		return c.unclaimed(ctx, q, doc)
	}
	describe(doc, r)
	doc.Mismatch = q.fingerprint != "" && r.Fingerprint != "" && q.fingerprint != r.Fingerprint
	switch r.State {
	case dedup.Running:
		return c.running(ctx, q, doc, r)
	case dedup.Completed:
		blocked(q, doc, false, "it completed, and its window is not over")
	case dedup.Failed, dedup.Canceled:
		doc.Until = nil
		doc.Reason = "it did not complete: a request made now is a new one"
	case dedup.Released: // such a one is not found
	}
	return nil
}

// redelivered looks for the run that this request id has begun.
func (c *checker) redelivered(ctx context.Context, q *question, doc *checkDoc) (bool, error) {
	if q.requestID == "" {
		return false, nil
	}
	if q.key.Name == "" {
		return c.begun(ctx, q, doc)
	}
	r, err := c.claims.LookupRequest(ctx, q.key, q.requestID)
	if err != nil || r == nil {
		return false, err
	}
	describe(doc, r)
	doc.Duplicate, doc.State, doc.Would = true, stateRedelivered, wouldAnswer
	doc.Reason = fmt.Sprintf("this request began that run, which is %s", r.State)
	return true, nil
}

// begun is the same for a pipeline without a key, whose runs bear the request
// id in their own.
func (c *checker) begun(ctx context.Context, q *question, doc *checkDoc) (bool, error) {
	d, err := c.outline(ctx, run.ID(q.key.Tenant, q.key.Project, q.pipeline, q.requestID))
	if err != nil || d == nil {
		return false, err
	}
	doc.Duplicate, doc.State, doc.Would = true, stateRedelivered, wouldAnswer
	doc.DuplicateOf, doc.ClaimedAt, doc.EndedAt = place(d.ID, d.RunID), d.StartedAt, d.EndedAt
	doc.Reason = fmt.Sprintf("this request began that run, which is %s", d.Status)
	return true, nil
}

// running asks whether the owner lives.
func (c *checker) running(ctx context.Context, q *question, doc *checkDoc, r *dedup.Record) error {
	answer := c.alive(ctx, r.Owner)
	switch {
	case answer.Unsure:
		return answer.Err
	case answer.Alive:
		blocked(q, doc, true, "it is in flight")
	case answer.State() == dedup.Completed:
		blocked(q, doc, false, "its run completed, and could not say so")
	default:
		doc.State = stateDead
		doc.Reason = "its owner is dead: it would be taken over"
	}
	return nil
}

// unclaimed asks Temporal, which may know of a run that Redis has lost.
func (c *checker) unclaimed(ctx context.Context, q *question, doc *checkDoc) error {
	if q.key.Pipeline == "" {
		return nil // only pipelines have their key in the id
	}
	d, err := c.outline(ctx, run.KeyedID(q.key.Tenant, q.key.Project, q.pipeline, q.key.Name))
	if err != nil || d == nil || d.Status.Terminal() && d.Status != run.Succeeded {
		return err
	}
	last, err := c.claims.Last(ctx, q.key)
	if err != nil {
		return err
	}
	if last != nil && last.State == dedup.Released && last.Owner.RunID == d.RunID {
		describe(doc, last)
		doc.Reason = "an operator released it"
		return nil
	}
	if !d.Status.Terminal() {
		doc.State, doc.DuplicateOf, doc.ClaimedAt = string(dedup.Running), place(d.ID, d.RunID), d.StartedAt
		blocked(q, doc, true, "Temporal runs it, and Redis has no claim of it")
		return nil
	}
	window, err := c.window(ctx, q)
	if err != nil {
		return err
	}
	if until := d.EndedAt.Add(window); until.After(c.now) {
		doc.State, doc.DuplicateOf, doc.Until = string(dedup.Completed), place(d.ID, d.RunID), &until
		doc.ClaimedAt, doc.EndedAt = d.StartedAt, d.EndedAt
		blocked(q, doc, false, "Temporal knows that it completed, and Redis has no claim of it")
	}
	return nil
}

// window is that of the file, or what auto means.
func (c *checker) window(ctx context.Context, q *question) (time.Duration, error) {
	if q.dedup != nil && q.dedup.Window > 0 {
		return q.dedup.Window, nil
	}
	return c.durations.Window(ctx, durations.Subject{
		Tenant: q.key.Tenant, Project: q.key.Project, Pipeline: q.pipeline,
	}, q.timeout)
}

// outline is what Temporal knows of the newest run under an id, nil where it
// knows of none.
func (c *checker) outline(ctx context.Context, id string) (*run.Document, error) {
	ref, err := c.runs.Resolve(ctx, id)
	if _, unknown := errors.AsType[*runs.UnknownError](err); unknown {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	return c.runs.Outline(ctx, ref)
}

// describe fills in what a claim says.
func describe(doc *checkDoc, r *dedup.Record) {
	doc.State, doc.Node, doc.By = string(r.State), r.Owner.Node, r.Request.Sender
	doc.DuplicateOf = place(r.Owner.WorkflowID, r.Owner.RunID)
	doc.ClaimedAt, doc.EndedAt = &r.ClaimedAt, r.EndedAt
	if r.State == dedup.Completed {
		doc.Until = r.Until
	}
}

// blocked says what would be done with a duplicate, by the policy of the file.
func blocked(q *question, doc *checkDoc, inFlight bool, why string) {
	doc.Duplicate, doc.Reason, doc.Would = true, why, wouldAnswer
	if inFlight {
		doc.Would = wouldAttach
	}
	if q.dedup == nil {
		return
	}
	switch {
	case doc.Mismatch && q.dedup.OnMismatch == wouldReject:
		doc.Would, doc.Reason = wouldReject, why+", and its inputs are others"
	case q.dedup.OnDuplicate == spec.OnDuplicateReject:
		doc.Would = wouldReject
	case q.dedup.OnDuplicate == spec.OnDuplicateReplace && inFlight:
		doc.Duplicate, doc.Would = false, wouldReplace
	}
}
