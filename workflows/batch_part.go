package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/batch"
	"belay.run/internal/run"
	"belay.run/internal/tracing"
)

// slice is a part of a batch: its chunks, a window of them at a time.
type slice struct {
	in    *batch.PartInput
	tally batch.Tally
	// busy has a place for each chunk that may run; next is the first chunk that
	// has not begun.
	busy []bool
	next int
	// unsettled are chunks that ended without an account.
	unsettled, lost []batch.Chunk
}

// BatchPart runs some chunks of a batch and returns what they came to. A cancel
// is confirmed with that in its details.
func BatchPart(ctx workflow.Context, in batch.PartInput) (*batch.Tally, error) {
	s := &slice{in: &in, busy: make([]bool, in.Window)}
	tracing.Tell(ctx, "part of a batch", &tracing.Scope{Tenant: in.Batch.Tenant, Project: in.Batch.Project, Run: in.Batch.ID})
	err := workflow.SetQueryHandler(ctx, batch.StatusQuery, func() (*batch.Progress, error) { return s.progress(), nil })
	if err != nil {
		return nil, fmt.Errorf("setting the status query: %w", err)
	}
	for ctx.Err() == nil && s.next < in.Chunks {
		place := s.free()
		if place < 0 {
			// The cancel of ctx ends it too: the loop looks.
			_ = workflow.Await(ctx, func() bool { return s.free() >= 0 })
			continue
		}
		s.begin(ctx, place)
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	if err := workflow.Await(d, s.idle); err != nil {
		workflow.GetLogger(d).Warn("stopped waiting for the chunks", "error", err)
	}
	s.settle(d)
	for ; s.next < in.Chunks; s.next++ {
		s.tally.NotStarted += s.chunk(s.next).Tasks
	}
	workflow.SetCurrentDetails(d, describeBatch(&s.progress().Document))
	if ctx.Err() != nil {
		return nil, temporal.NewCanceledError(s.tally)
	}
	return &s.tally, nil
}

func (s *slice) chunk(place int) batch.Chunk { return s.in.Chunk(place) }

func (s *slice) free() int {
	for place, busy := range s.busy {
		if !busy {
			return place
		}
	}
	return -1
}

func (s *slice) idle() bool {
	for _, busy := range s.busy {
		if busy {
			return false
		}
	}
	return true
}

// begin starts the next chunk at a place of the window.
func (s *slice) begin(ctx workflow.Context, place int) {
	c := s.chunk(s.next)
	s.next++
	s.busy[place] = true
	in := activities.ChunkInput{Chunk: c, Rate: s.in.Rate}
	if n := s.in.Concurrency; n > 0 {
		in.Concurrency = n / s.in.Window
		if place < n%s.in.Window {
			in.Concurrency++
		}
	}
	var b *activities.Batches
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, chunkOptions(&c)), b.RunChunk, in)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var t batch.Tally
		s.note(&c, &t, future.Get(ctx, &t))
		s.busy[place] = false
	})
}

// note takes in how a chunk ended.
func (s *slice) note(c *batch.Chunk, t *batch.Tally, err error) {
	var counted batch.Tally
	var canceled *temporal.CanceledError
	switch {
	case err == nil:
		s.tally.Plus(t)
	case errors.As(err, &canceled) && details(canceled, &counted):
		s.tally.Plus(&counted)
	case canceled != nil:
		s.unsettled = append(s.unsettled, *c)
	default:
		s.lost = append(s.lost, *c)
		s.tally.Note("%s: %s", c, reason(err))
	}
}

// reason is what an activity said, without what Temporal says around it.
func reason(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return app.Message()
	}
	return err.Error()
}

// settle makes the account of the chunks that have none.
func (s *slice) settle(ctx workflow.Context) {
	if len(s.unsettled) > 0 {
		t := settleChunks(ctx, s.unsettled, "the batch was cancelled", false)
		s.tally.Plus(&t)
	}
	if len(s.lost) > 0 {
		t := settleChunks(ctx, s.lost, "the chunk could not be run", true)
		s.tally.Plus(&t)
	}
}

// settleChunks makes the account of chunks from the records. Where these cannot
// be read, nobody can say what was done, which counts as failed.
func settleChunks(ctx workflow.Context, chunks []batch.Chunk, why string, lost bool) batch.Tally {
	var t batch.Tally
	var b *activities.Batches
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, settleChunksOptions()), b.SettleChunks,
		activities.SettleChunksInput{Chunks: chunks, Why: why, Lost: lost}).Get(ctx, &t)
	if err != nil {
		t = batch.Tally{}
		for i := range chunks {
			t.Failed += chunks[i].Tasks
		}
		t.Note("%d tasks count as failed, as what is recorded of them could not be read: %s", t.Failed, reason(err))
	}
	return t
}

// progress is what the status query tells: what its closed chunks came to.
func (s *slice) progress() *batch.Progress {
	d := batch.Document{ID: s.in.Batch.ID, Status: run.Running}
	for k := range s.in.Chunks {
		d.Total += s.chunk(k).Tasks
	}
	tally := s.tally
	tally.NotStarted = 0
	d.Counts = tally.Counts
	d.NotStarted = d.Total - tally.Sum()
	d.Failures = tally.Failures
	return &batch.Progress{Document: d}
}
