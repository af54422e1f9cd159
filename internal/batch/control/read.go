package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/batch"
	"belay.run/internal/run"
	"belay.run/internal/store"
)

const (
	// patience is how long a worker has to answer how a batch stands.
	patience = 5 * time.Second
	// serverPatience is how long the server has for what needs no worker.
	serverPatience = 10 * time.Second
)

// UnknownError says that there is no such batch.
type UnknownError struct {
	ID string
	// Reason is what there is instead; it may be empty.
	Reason string
}

// Error names the id.
func (e *UnknownError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("%q is no batch: %s", e.ID, e.Reason)
	}
	return fmt.Sprintf("no batch %q", e.ID)
}

// Terminated is in the message of the cause of a batch whose workflow was
// terminated: its account is to be read from the store.
const Terminated = "its workflow was terminated"

// Read tells how a batch stands, or how it ended.
func (c *Client) Read(ctx context.Context, id string) (*batch.Document, error) {
	desc, in, err := c.describe(ctx, id)
	if err != nil {
		return nil, err
	}
	info := desc.GetWorkflowExecutionInfo()
	d := in.Document(id, info.GetExecution().GetRunId(), info.GetStartTime().AsTime())
	if info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		c.live(ctx, &d)
		if desc.GetWorkflowExtendedInfo().GetCancelRequested() {
			d.Status = run.Cancelling
		}
	} else if err := c.closed(ctx, &d, info.GetCloseTime().AsTime()); err != nil {
		return nil, err
	}
	d.URL = c.URL(id, d.RunID)
	return &d, nil
}

// describe asks the server for a batch, and for what it was started with.
func (c *Client) describe(ctx context.Context, id string) (*workflowservice.DescribeWorkflowExecutionResponse, *batch.Input, error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	desc, err := c.temporal.DescribeWorkflowExecution(ctx, id, "")
	if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
		return nil, nil, &UnknownError{ID: id}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("asking Temporal for batch %s: %w", id, err)
	}
	info := desc.GetWorkflowExecutionInfo()
	if name := info.GetType().GetName(); name != batch.Workflow {
		return nil, nil, &UnknownError{ID: id, Reason: "it is a workflow of type " + name}
	}
	in := &batch.Input{}
	if p := info.GetMemo().GetFields()[batch.Memo]; p != nil {
		if err := converter.GetDefaultDataConverter().FromPayload(p, in); err != nil {
			return nil, nil, fmt.Errorf("reading what batch %s was started with: %w", id, err)
		}
	}
	return desc, in, nil
}

// closed fills in how a batch ended.
func (c *Client) closed(ctx context.Context, d *batch.Document, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	var doc batch.Document
	err := c.temporal.GetWorkflow(ctx, d.ID, d.RunID).Get(ctx, &doc)
	var (
		app        *temporal.ApplicationError
		canceled   *temporal.CanceledError
		terminated *temporal.TerminatedError
	)
	switch {
	case err == nil:
	case errors.As(err, &app) && app.HasDetails() && app.Details(&doc) == nil:
	case errors.As(err, &canceled) && canceled.HasDetails() && canceled.Details(&doc) == nil:
	case errors.As(err, &terminated):
		d.Status, d.EndedAt = run.Cancelled, &at
		d.Cause = &run.Cause{Trigger: run.TriggerUser, Message: Terminated}
		return nil
	case errors.As(err, &app), errors.As(err, &canceled):
		d.Status, d.EndedAt = run.Failed, &at
		d.Cause = &run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: err.Error()}
		return nil
	default:
		return fmt.Errorf("reading how batch %s ended: %w", d.ID, err)
	}
	*d = doc
	return nil
}

// live fills in how a batch stands: what its workflow knows, what its parts do,
// and what their chunks last said. Where no worker answers it says so.
func (c *Client) live(ctx context.Context, d *batch.Document) {
	progress, err := c.query(ctx, d.ID, "")
	if err != nil {
		if ctx.Err() == nil {
			d.Notes = append(d.Notes, "no worker tells how it stands")
		}
		return
	}
	*d = progress.Document
	tally := batch.Tally{Counts: d.Counts, Failures: d.Failures, Notes: d.Notes}
	tally.NotStarted = 0
	for _, p := range progress.Parts {
		c.part(ctx, p, &tally)
	}
	d.Take(&tally, time.Now())
}

// part adds what a part has come to. What cannot be asked is left out: the next
// look finds it.
func (c *Client) part(ctx context.Context, p batch.Part, tally *batch.Tally) {
	progress, err := c.query(ctx, p.WorkflowID, p.RunID)
	if err != nil {
		return
	}
	counted := batch.Tally{Counts: progress.Document.Counts, Failures: progress.Document.Failures}
	counted.NotStarted = 0
	tally.Plus(&counted)
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	desc, err := c.temporal.DescribeWorkflowExecution(ctx, p.WorkflowID, p.RunID)
	if err != nil {
		return
	}
	for _, a := range desc.GetPendingActivities() {
		var said chunkProgress
		if firstOf(a.GetHeartbeatDetails(), &said) {
			tally.Plus(&batch.Tally{Counts: said.Counts})
		}
	}
}

// chunkProgress is what of the heartbeat of a chunk is shown.
type chunkProgress struct {
	Counts batch.Counts `json:"counts"`
}

func firstOf(p *commonpb.Payloads, into any) bool {
	return len(p.GetPayloads()) > 0 && converter.GetDefaultDataConverter().FromPayload(p.GetPayloads()[0], into) == nil
}

func (c *Client) query(ctx context.Context, id, runID string) (*batch.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := c.temporal.QueryWorkflow(ctx, id, runID, batch.StatusQuery)
	if err != nil {
		return nil, err
	}
	var p batch.Progress
	return &p, answer.Get(&p)
}

// Recount makes the account of a batch whose workflow was terminated, of what the
// store has of it. Of any other the document stays as it is.
func Recount(ctx context.Context, st store.Store, d *batch.Document) error {
	if d.Cause == nil || d.Cause.Message != Terminated || d.Status != run.Cancelled || d.ChunkSize == 0 {
		return nil
	}
	t, err := batch.Recount(ctx, st, d)
	if err != nil {
		return err
	}
	d.Take(t, *d.EndedAt)
	return nil
}
