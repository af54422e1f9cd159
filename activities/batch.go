package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"

	"belay.run/internal/batch"
	"belay.run/internal/run"
	"belay.run/internal/store"
	"belay.run/internal/task"
	"belay.run/internal/telemetry"
)

const (
	// ChunkHeartbeat is how long a worker that runs a chunk may be silent.
	ChunkHeartbeat = 10 * time.Second
	// chunkBeat is how often it says how far it is; where the server does not
	// push a cancel, this is how soon one is heard of.
	chunkBeat = 400 * time.Millisecond
	// chunkSilence is how long a chunk goes on without an answer to that. It ends
	// before the server may start another attempt beside it.
	chunkSilence = 7 * time.Second
	// flushEvery is how long a result may stay unrecorded, and flushMost how many
	// may.
	flushEvery = 20 * time.Millisecond
	flushMost  = 500
	// recordWithin is how long an attempt that is to end tries to record what its
	// tasks came to.
	recordWithin = 20 * time.Second
)

// ChunkInput is a chunk of a batch to be run.
type ChunkInput struct {
	Chunk batch.Chunk `json:"chunk"`
	// Concurrency is how many of its tasks run at once, 0 without a bound, and
	// Rate how many begin in a second.
	Concurrency int     `json:"concurrency,omitempty"`
	Rate        float64 `json:"rate,omitempty"`
}

// ChunkProgress is what the heartbeat of a chunk shows.
type ChunkProgress struct {
	Tasks  int          `json:"tasks"`
	Counts batch.Counts `json:"counts"`
	// Waiting is what the chunk waits for, other than its tasks.
	Waiting string `json:"waiting,omitempty"`
}

// SettleChunksInput names chunks of a batch that have ended without an account.
type SettleChunksInput struct {
	Chunks []batch.Chunk `json:"chunks"`
	// Why is what ended them.
	Why string `json:"why"`
	// Lost says that their tasks cannot be run: all without a result count as
	// failed.
	Lost bool `json:"lost,omitempty"`
}

// TaskExecutor runs light tasks.
type TaskExecutor interface {
	// SubmitBatch returns a channel with a result for each task, in the order in
	// which they end. It is closed after the last, and never blocks the executor.
	SubmitBatch(ctx context.Context, tasks []task.Task) <-chan task.Result
}

// BatchesConfig is what running batches needs.
type BatchesConfig struct {
	Client    client.Client
	Namespace string
	Store     store.Store
	Executor  TaskExecutor
	Logger    *zap.Logger
}

// Batches holds the activities of batches.
type Batches struct{ cfg BatchesConfig }

// NewBatches returns Batches.
func NewBatches(cfg BatchesConfig) *Batches {
	cfg.Logger = telemetry.OrNop(cfg.Logger)
	return &Batches{cfg: cfg}
}

// RunChunk runs the tasks of a chunk that have no result yet and returns the
// account of all of them. A cancel is confirmed with the account in its details.
func (b *Batches) RunChunk(ctx context.Context, in ChunkInput) (*batch.Tally, error) {
	unstick(ctx, b.cfg.Client, b.cfg.Namespace)
	r := newChunkRun(ctx, b, &in, activity.GetWorkerStopChannel(ctx))
	defer r.pulse(ctx)()
	err := r.run() //nolint:contextcheck // its own context outlives the activity's
	if err != nil {
		r.log.Debug("an attempt at a chunk has ended early", zap.Error(err))
	}
	return r.report(err)
}

// SettleChunks makes the account of chunks from what is recorded of them. A task
// that an attempt had taken, and of which nobody knows more, failed.
func (b *Batches) SettleChunks(ctx context.Context, in SettleChunksInput) (*batch.Tally, error) {
	unstick(ctx, b.cfg.Client, b.cfg.Namespace)
	defer beating(ctx)()
	total := &batch.Tally{}
	for i := range in.Chunks {
		var t *batch.Tally
		err := batch.Patiently(ctx, b.away, func(ctx context.Context) (err error) {
			t, err = b.settle(ctx, &in.Chunks[i], &in)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("settling %s: %w", &in.Chunks[i], err)
		}
		total.Plus(t)
	}
	return total, nil
}

// settle makes the account of one chunk.
func (b *Batches) settle(ctx context.Context, c *batch.Chunk, in *SettleChunksInput) (*batch.Tally, error) {
	j, err := batch.ReadJournal(ctx, b.cfg.Store, c)
	if err != nil {
		return nil, err
	}
	if !j.Doubts() && !in.Lost {
		return j.Tally(), nil
	}
	tasks, err := batch.Load(ctx, b.cfg.Store, c)
	if errors.Is(err, batch.ErrDamaged) {
		return lostTally(c, j, in.Why), nil
	}
	if err != nil {
		return nil, err
	}
	var entries []batch.Entry
	for i, r := range j.Results {
		if r == nil && (j.Doubt[i] || in.Lost) {
			entries = append(entries, batch.Entry{Place: i, Result: batch.Doubtful(&tasks.Tasks[i], in.Why)})
		}
	}
	// From here on an attempt that still runs somewhere records nothing.
	if err := j.Record(ctx, entries); err != nil {
		return nil, err
	}
	return j.Tally(), nil
}

// lostTally is the account of a chunk whose tasks the store has lost.
func lostTally(c *batch.Chunk, j *batch.Journal, why string) *batch.Tally {
	t := j.Tally()
	t.Failed, t.NotStarted = t.Failed+t.NotStarted, 0
	t.Note("%s: %s", c, why)
	return t
}

// away tells that the store does not answer.
func (b *Batches) away(err error) {
	b.cfg.Logger.Warn("the store does not take what a batch records; trying again", zap.Error(err))
}

// report is what the activity returns.
func (r *chunkRun) report(err error) (*batch.Tally, error) {
	stop := r.stopped()
	switch {
	case stop != nil && stop.kind == stopCancelled:
		if err != nil {
			return nil, temporal.NewCanceledError() // it is settled by who reads the records
		}
		return nil, temporal.NewCanceledError(r.account())
	case stop != nil:
		return nil, failRetryable(stop.cause)
	case errors.Is(err, batch.ErrDamaged):
		return nil, fail(awayCause(err))
	case err != nil:
		return nil, failRetryable(awayCause(err))
	}
	return r.account(), nil
}

// awayCause is the cause of a chunk that its records keep from going on.
func awayCause(err error) run.Cause {
	return run.Cause{Trigger: run.TriggerDependencyUnavailable, Message: err.Error()}
}

// pulse tells Temporal how far the chunk is, until the function it returns is
// called, and stops the chunk where Temporal asks for it. As with steps, the
// SDK's own heartbeat does not serve: it cancels what runs when a call fails.
func (r *chunkRun) pulse(ctx context.Context) func() {
	info := activity.GetInfo(ctx)
	p := &pulse{
		every: chunkBeat, silence: chunkSilence, stop: r.stop,
		beat: func(ctx context.Context) error {
			return r.of.cfg.Client.RecordActivityHeartbeat(ctx, info.TaskToken, r.progress())
		},
	}
	if r.of.cfg.Client == nil { // as in a test of the activity alone
		p.beat = func(context.Context) error { return nil }
	}
	return p.start(ctx)
}
