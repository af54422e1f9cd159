package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"belay.run/internal/run"
	"belay.run/workflows"
)

// Snapshot is a run at one moment.
type Snapshot struct {
	Document *run.Document
	// Closed says that the run's workflow has ended. The stages of one that was
	// terminated may still be ending: Settled says that nothing will change.
	Closed, Settled bool
	// NoAnswer says why no worker told how the run stands, so that Document
	// holds only what the server itself knows; it is empty when one did.
	NoAnswer string
}

// Reader reads one run again and again. It remembers what cannot change any
// more. It is not safe for concurrent use.
type Reader struct {
	c   *Client
	ref Ref
	// ended are the stages whose end was read, by workflow run id.
	ended map[string]*run.Stage
	// last is the run once it has ended.
	last *Snapshot
	// historyAt is when a history was last read for want of a worker.
	historyAt time.Time
	history   *run.Document
	// groups are those that something of the run waits for, by workflow id.
	groups map[string]seenGroup
}

// historyEvery bounds how often a history is read while no worker answers.
const historyEvery = 5 * time.Second

// Reader makes a reader of one run.
func (c *Client) Reader(ref Ref) *Reader {
	return &Reader{c: c, ref: ref, ended: map[string]*run.Stage{}, groups: map[string]seenGroup{}}
}

// Read tells how the run stands now, with the steps of every stage. It takes a
// bounded time, also when no worker answers; then the error is in the snapshot.
func (r *Reader) Read(ctx context.Context) (*Snapshot, error) {
	if r.last != nil {
		return r.last, nil
	}
	snap, err := r.pipeline(ctx)
	if err != nil {
		return nil, err
	}
	d := snap.Document
	d.URL = r.c.URL(Ref{ID: d.ID, RunID: d.RunID})
	if err := r.stages(ctx, snap); err != nil {
		return nil, err
	}
	r.places(ctx, d)
	complete(d)
	r.c.settle(ctx, d)
	if snap.Settled = snap.Closed && snap.NoAnswer == "" && !anyOpen(d); snap.Settled {
		r.last = snap
	}
	return snap, nil
}

// anyOpen reports whether a stage that was started has not ended.
func anyOpen(d *run.Document) bool {
	return slices.ContainsFunc(d.Stages, func(s run.Stage) bool { return s.WorkflowID != "" && !s.Status.Terminal() })
}

// pipeline reads the run's own level.
func (r *Reader) pipeline(ctx context.Context) (*Snapshot, error) {
	var d run.Document
	closed, err := r.c.query(ctx, r.ref, &d)
	switch {
	case err == nil && closed:
		return r.closedPipeline(ctx)
	case err == nil:
		return &Snapshot{Document: &d}, nil
	case !silent(ctx, err):
		return nil, fmt.Errorf("asking how run %s stands: %w", r.ref.ID, err)
	}
	if r.history == nil || time.Since(r.historyAt) > historyEvery {
		if r.history, err = r.c.fromHistory(ctx, r.ref); err != nil {
			return nil, err
		}
		r.historyAt = time.Now()
	}
	copied := *r.history
	copied.Stages = append([]run.Stage(nil), r.history.Stages...)
	return &Snapshot{Document: &copied, NoAnswer: "no worker answers (is one running?)"}, nil
}

// closedPipeline reads how the run ended, from what its workflow left, else
// from its history.
func (r *Reader) closedPipeline(ctx context.Context) (*Snapshot, error) {
	var d run.Document
	end, err := r.c.result(ctx, r.ref, &d)
	if err != nil {
		return nil, err
	}
	if end.read && d.ID != "" && d.Status.Terminal() {
		return &Snapshot{Document: &d, Closed: true}, nil
	}
	doc, err := r.c.fromHistory(ctx, r.ref)
	if err != nil {
		return nil, err
	}
	doc.Status, doc.Cause = end.status, end.cause
	return &Snapshot{Document: doc, Closed: true}, nil
}

// stages fills in what each stage's own workflow says, a few at a time.
func (r *Reader) stages(ctx context.Context, snap *Snapshot) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patience, errSilent)
	defer cancel()
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	stages := snap.Document.Stages
	for _, i := range r.open(stages) {
		group.Go(func() error {
			doc, closed, err := r.c.stage(ctx, Ref{ID: stages[i].WorkflowID, RunID: stages[i].RunID})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil && silent(ctx, err), isNotFound(err):
				snap.NoAnswer = "no worker answers for stage " + stages[i].Node
				return nil
			case err != nil:
				return fmt.Errorf("asking how stage %s stands: %w", stages[i].Node, err)
			case closed:
				r.ended[stages[i].RunID] = doc
			}
			merge(&stages[i], doc)
			return nil
		})
	}
	return group.Wait()
}

// open fills in the stages that are known to have ended, and returns the places
// of those that have to be asked.
func (r *Reader) open(stages []run.Stage) []int {
	var open []int
	for i := range stages {
		if stages[i].WorkflowID == "" {
			continue
		}
		if known, ok := r.ended[stages[i].RunID]; ok {
			merge(&stages[i], known)
		} else {
			open = append(open, i)
		}
	}
	return open
}

// stage reads one stage's own document.
func (c *Client) stage(ctx context.Context, ref Ref) (doc *run.Stage, closed bool, err error) {
	doc = &run.Stage{}
	closed, err = c.query(ctx, ref, doc)
	if err != nil {
		return nil, false, err
	}
	if !closed {
		c.pending(ctx, ref, doc)
		return doc, false, nil
	}
	doc = &run.Stage{}
	end, err := c.result(ctx, ref, doc)
	if err != nil {
		return nil, false, err
	}
	if !end.read || !doc.Status.Terminal() {
		doc, err = c.remnant(ctx, ref, end)
	}
	return doc, true, err
}

// errSilent is the cause of a question that was given up.
var errSilent = errors.New("no worker answered in time")

// query asks a workflow for its document. One that is closed is not asked, as
// that would need a worker: closed is true instead.
func (c *Client) query(ctx context.Context, ref Ref, into any) (closed bool, err error) {
	// The SDK gives one call half of what is left, to have time for another.
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patience, errSilent)
	defer cancel()
	resp, err := c.temporal.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: ref.ID, RunID: ref.RunID, QueryType: workflows.StatusQuery,
		QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		} else if cancelled(err) {
			err = fmt.Errorf("%w: %w", errSilent, err)
		}
		return false, err
	}
	if resp.QueryRejected != nil {
		return true, nil
	}
	if err := resp.QueryResult.Get(into); err != nil {
		return false, fmt.Errorf("reading the status of %s: %w", ref.ID, err)
	}
	return false, nil
}

// cancelled reports whether a question was given up by the server, as when the
// worker died to which it had been handed.
func cancelled(err error) bool {
	var canceled *serviceerror.Canceled
	return errors.As(err, &canceled) || errors.Is(err, context.Canceled)
}

// silent reports whether an error only says that no worker answered, while the
// server did: there is none, it is busy, or it has not begun yet.
func silent(ctx context.Context, err error) bool {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errSilent) {
		return false
	}
	var (
		notReady *serviceerror.WorkflowNotReady
		precond  *serviceerror.FailedPrecondition
		failed   *serviceerror.QueryFailed
		deadline *serviceerror.DeadlineExceeded
	)
	return errors.Is(err, errSilent) || errors.As(err, &notReady) || errors.As(err, &precond) ||
		errors.As(err, &failed) || errors.As(err, &deadline)
}
