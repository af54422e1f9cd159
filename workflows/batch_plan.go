package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/internal/batch"
	"belay.run/internal/run"
	"belay.run/internal/tracing"
)

const (
	// chunkWindow is how many chunks of a batch run at once.
	chunkWindow = 16
	// partChunks is how many chunks a part has at most: its history stays short,
	// and what waits for one part is not much.
	partChunks = 100
	// partsPerRun is after how many parts a batch continues as a new run.
	partsPerRun = 50
	// slowest is how many tasks a second make a chunk worth its place in the
	// window of a batch with a rate.
	slowest = 10
)

// batchPlan says how a batch is divided.
type batchPlan struct {
	chunks, parts int
	// lanes are what the parts that run at once have of the window and of the
	// concurrency, 0 where that is not bounded.
	lanes []batchLane
	// rate is what each chunk has of the batch's.
	rate float64
}

type batchLane struct{ window, concurrency int }

// planBatch divides a batch into parts of about the same size, and what it may
// use among those that run at once.
func planBatch(in *batch.Input) batchPlan {
	p := batchPlan{chunks: in.Chunks(), parts: 1}
	window := min(chunkWindow, p.chunks)
	if in.Concurrency > 0 {
		window = min(window, in.Concurrency)
	}
	if in.Rate > 0 {
		window = min(window, max(1, int(in.Rate/slowest)))
	}
	if p.chunks > window && window > 1 || p.chunks > partChunks {
		p.parts = (p.chunks + partChunks - 1) / partChunks
	}
	if window == 1 || p.chunks <= window {
		p.lanes = []batchLane{{window, in.Concurrency}}
	} else {
		p.parts += p.parts % 2 // so that neither lane is left with one more
		p.lanes = []batchLane{
			{(window + 1) / 2, (in.Concurrency + 1) / 2},
			{window / 2, in.Concurrency / 2},
		}
	}
	p.rate = in.Rate / float64(window)
	return p
}

// part is the input of a part by its place, in a lane.
func (p *batchPlan) part(in *batch.Input, ref batch.Ref, place, lane int) batch.PartInput {
	each, more := p.chunks/p.parts, p.chunks%p.parts
	first := place*each + min(place, more)
	if place < more {
		each++
	}
	l := p.lanes[lane]
	return batch.PartInput{
		Batch: ref, First: first, Chunks: each, Total: in.Total, ChunkSize: in.ChunkSize,
		Window: l.window, Concurrency: l.concurrency, Rate: p.rate,
	}
}

// publishBatch makes the state of a batch searchable.
func publishBatch(ctx workflow.Context, status run.Status) error {
	tracing.Note(ctx, tracing.AttrStatus, string(status))
	err := workflow.UpsertTypedSearchAttributes(ctx, temporal.NewSearchAttributeKeyKeyword(AttrStatus).ValueSet(string(status)))
	if err != nil {
		return fmt.Errorf("setting search attributes: %w", err)
	}
	return nil
}

// describeBatch is a batch as Temporal's UI shows it.
func describeBatch(d *batch.Document) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**: %d of %d tasks", d.Status, d.Ended(), d.Total)
	if d.File != "" {
		fmt.Fprintf(&b, " of `%s`", d.File)
	}
	b.WriteString("\n\n| succeeded | failed | duplicate | skipped | not started | retried | rate |\n|---|---|---|---|---|---|---|\n")
	fmt.Fprintf(&b, "| %d | %d | %d | %d | %d | %d | %.0f/s |\n", d.Succeeded, d.Failed, d.Duplicate, d.Skipped, d.NotStarted, d.Retried, d.Rate)
	if d.Cause != nil {
		fmt.Fprintf(&b, "\n%s\n", d.Cause)
	}
	for i := range d.Failures {
		f := &d.Failures[i]
		fmt.Fprintf(&b, "\n- line %d `%s` (%s): %s", f.Line, f.ID, f.Type, f.Message)
	}
	for _, n := range d.Notes {
		fmt.Fprintf(&b, "\n- %s", n)
	}
	return b.String()
}
