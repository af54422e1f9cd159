package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/batch"
	"belay.run/internal/run"
	"belay.run/internal/tracing"
)

// bulk is a batch: its parts, two at a time, and what they came to.
type bulk struct {
	in    *batch.Input
	doc   batch.Document
	tally batch.Tally
	plan  batchPlan
	// next is the first part that has not begun, open those that run, by lane.
	next int
	open []*part
}

// part is a child workflow that runs.
type part struct {
	in  batch.PartInput
	ref batch.Part
}

// Batch runs a batch of light tasks, whose chunks lie in the store, part by
// part, and tells who wants to know when it has ended. What it returns, or fails
// with, holds counts and samples; the results lie in the store.
func Batch(ctx workflow.Context, in batch.Input) (*batch.Document, error) {
	b, err := newBulk(ctx, &in)
	if err != nil {
		return nil, err
	}
	for ctx.Err() == nil && b.next < b.plan.parts {
		if b.next-b.first() >= partsPerRun {
			b.drain(ctx)
			if ctx.Err() == nil {
				return nil, b.carryOn(ctx)
			}
			break
		}
		lane := b.free()
		if lane < 0 {
			// The cancel of ctx ends it too: the loop looks.
			_ = workflow.Await(ctx, func() bool { return b.free() >= 0 })
			continue
		}
		b.begin(ctx, lane)
	}
	b.drain(ctx)
	return b.close(ctx)
}

func newBulk(ctx workflow.Context, in *batch.Input) (*bulk, error) {
	info := workflow.GetInfo(ctx)
	now := workflow.Now(ctx)
	b := &bulk{in: in, plan: planBatch(in), doc: in.Document(info.WorkflowExecution.ID, info.WorkflowExecution.RunID, now)}
	if c := in.Carried; c != nil {
		b.next, b.doc.StartedAt, b.tally = c.Next, &c.StartedAt, c.Tally
	}
	b.open = make([]*part, len(b.plan.lanes))
	tracing.Tell(ctx, "batch", &tracing.Scope{Tenant: in.Tenant, Project: in.Project, Run: b.doc.ID})
	err := workflow.SetQueryHandler(ctx, batch.StatusQuery, func() (*batch.Progress, error) { return b.progress(), nil })
	if err != nil {
		return nil, fmt.Errorf("setting the status query: %w", err)
	}
	b.describe(ctx)
	return b, publishBatch(ctx, b.doc.Status)
}

// first is the first part of this run of the workflow.
func (b *bulk) first() int {
	if b.in.Carried == nil {
		return 0
	}
	return b.in.Carried.Next
}

// free is a lane in which no part runs, -1 where there is none.
func (b *bulk) free() int {
	for lane, p := range b.open {
		if p == nil {
			return lane
		}
	}
	return -1
}

// begin starts the next part in a lane.
func (b *bulk) begin(ctx workflow.Context, lane int) {
	p := &part{in: b.plan.part(b.in, b.doc.Ref(), b.next, lane)}
	b.open[lane] = p
	b.next++
	future := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, partOptions(b.in, &p.in, b.next)), batch.PartWorkflow, p.in)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var started workflow.Execution
		if future.GetChildWorkflowExecution().Get(ctx, &started) == nil {
			p.ref = batch.Part{WorkflowID: started.ID, RunID: started.RunID}
		}
		var t batch.Tally
		err := future.Get(ctx, &t)
		if err != nil {
			t = b.account(ctx, p, err)
		}
		b.tally.Plus(&t)
		b.open[lane] = nil
		b.describe(ctx)
	})
}

// account is that of a part which ended without a result.
func (b *bulk) account(ctx workflow.Context, p *part, err error) batch.Tally {
	var t batch.Tally
	if canceled, ok := errors.AsType[*temporal.CanceledError](err); ok && details(canceled, &t) {
		return t
	}
	if !temporal.IsCanceledError(err) {
		b.tally.Note("a part of the batch ended by itself: %v", err)
	}
	// What of it still runs ends, as its workflow has.
	d, _ := workflow.NewDisconnectedContext(ctx)
	return settleChunks(d, p.in.All(), "its workflow ended: "+err.Error(), false)
}

// drain waits for the parts that run.
func (b *bulk) drain(ctx workflow.Context) {
	d, _ := workflow.NewDisconnectedContext(ctx)
	err := workflow.Await(d, func() bool {
		for _, p := range b.open {
			if p != nil {
				return false
			}
		}
		return true
	})
	if err != nil {
		workflow.GetLogger(d).Warn("stopped waiting for the parts", "error", err)
	}
}

// carryOn continues as a new run, so that no history grows without bound.
func (b *bulk) carryOn(ctx workflow.Context) error {
	in := *b.in
	in.Carried = &batch.Carried{Next: b.next, StartedAt: *b.doc.StartedAt, Tally: b.tally}
	return workflow.NewContinueAsNewError(ctx, batch.Workflow, in)
}

// close settles how the batch ended and tells.
func (b *bulk) close(ctx workflow.Context) (*batch.Document, error) {
	cancelled := ctx.Err() != nil
	d, _ := workflow.NewDisconnectedContext(ctx)
	now := workflow.Now(ctx)
	b.doc.EndedAt = &now
	b.doc.Take(&b.tally, now)
	switch {
	case cancelled:
		b.doc.Status, b.doc.Cause = run.Cancelled, whyCancelled(d, b.doc.ID, b.doc.RunID)
	case b.doc.Ended() < b.doc.Total:
		b.doc.Status = run.Failed
		b.doc.Cause = &run.Cause{
			Trigger: run.TriggerWorkerLost, Message: fmt.Sprintf("%d of %d tasks did not run", b.doc.Total-b.doc.Ended(), b.doc.Total),
		}
	case b.doc.Failed > 0:
		b.doc.Status = run.Failed
		b.doc.Cause = &run.Cause{
			Trigger: run.TriggerExitCode, Message: fmt.Sprintf("%d of %d tasks failed", b.doc.Failed, b.doc.Total),
		}
	default:
		b.doc.Status = run.Succeeded
	}
	if note := b.notify(d); note != "" {
		b.tally.Note("%s", note)
		b.doc.Notes = b.tally.Notes
	}
	b.describe(d)
	if err := publishBatch(d, b.doc.Status); err != nil {
		return nil, err
	}
	if err := closeAs(b.doc.Status, b.doc.Cause, b.doc); err != nil {
		return nil, err
	}
	return &b.doc, nil
}

// notify tells who wants to know that the batch has ended.
func (b *bulk) notify(ctx workflow.Context) string {
	if b.in.Notify == nil {
		return ""
	}
	doc := b.doc
	return notify(ctx, b.in.Notify, activities.Notice{
		Event: activities.EventBatchEnded, Tenant: b.in.Tenant, Project: b.in.Project, At: *b.doc.EndedAt,
		Run: b.doc.ID, RunID: b.doc.RunID, RunKey: b.doc.Folder, Resources: []activities.NoticeResource{}, Batch: &doc,
	}, "how the batch ended")
}

// progress is what the status query tells.
func (b *bulk) progress() *batch.Progress {
	p := &batch.Progress{Document: b.doc}
	if b.doc.EndedAt == nil {
		tally := b.tally
		p.Document.Take(&tally, *b.doc.StartedAt)
	}
	for _, open := range b.open {
		if open != nil && open.ref.WorkflowID != "" {
			p.Parts = append(p.Parts, open.ref)
		}
	}
	return p
}

// describe shows the batch in Temporal's UI.
func (b *bulk) describe(ctx workflow.Context) {
	doc := b.doc
	if doc.EndedAt == nil {
		doc.Take(&b.tally, workflow.Now(ctx))
	}
	workflow.SetCurrentDetails(ctx, describeBatch(&doc))
}

// whyCancelled asks the history who cancelled a workflow.
func whyCancelled(ctx workflow.Context, id, runID string) *run.Cause {
	var why activities.CancelCause
	var control *activities.Control
	opts := controlOptions()
	opts.ScheduleToCloseTimeout = causeWithin
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), control.CancelCause,
		activities.CauseInput{WorkflowID: id, RunID: runID}).Get(ctx, &why)
	if err != nil {
		workflow.GetLogger(ctx).Warn("could not read why it was cancelled", "error", err)
		return &run.Cause{Trigger: run.TriggerUser}
	}
	return &why.Cause
}

// causeWithin bounds the look for who cancelled a batch.
const causeWithin = 30 * time.Second
