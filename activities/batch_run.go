package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"belay.run/internal/batch"
	"belay.run/internal/run"
	"belay.run/internal/task"
	"belay.run/internal/tracing"
)

// chunkRun is one attempt at a chunk.
type chunkRun struct {
	of  *Batches
	in  *ChunkInput
	log *zap.Logger
	// work is what its tasks run in, until stop ends it; feed ends sooner where
	// the worker is to stop in peace: no more tasks are handed out then.
	work context.Context //nolint:containedctx // outlives the activity's
	end  context.CancelCauseFunc
	feed context.Context //nolint:containedctx // likewise
	hold context.CancelCauseFunc
	// closing is closed when the worker begins to stop.
	closing <-chan struct{}

	tasks   *batch.Tasks
	journal *batch.Journal
	// earlier is what was in doubt when the attempt began, places where each task
	// is by its id, handed which were handed out.
	earlier []bool
	places  map[string]int
	handed  []atomic.Bool

	mu      sync.Mutex
	tally   batch.Tally
	waiting string
}

func newChunkRun(ctx context.Context, b *Batches, in *ChunkInput, closing <-chan struct{}) *chunkRun {
	r := &chunkRun{
		of: b, in: in, closing: closing,
		log: b.cfg.Logger.With(zap.String("batch", in.Chunk.Batch.ID), zap.Int("chunk", in.Chunk.Index)),
	}
	r.work, r.end = context.WithCancelCause(context.WithoutCancel(ctx))
	r.feed, r.hold = context.WithCancelCause(r.work)
	return r
}

// stop ends the attempt; the first reason counts.
func (r *chunkRun) stop(why *stopError) { r.end(why) }

// stopped is why it was ended, nil where it was not.
func (r *chunkRun) stopped() *stopError {
	why, _ := errors.AsType[*stopError](context.Cause(r.work))
	return why
}

// run loads the chunk, takes it, and runs what has no result.
func (r *chunkRun) run() error {
	defer r.end(nil)
	err := batch.Patiently(r.work, r.away, r.take)
	if err != nil {
		return err
	}
	places := r.left()
	if len(places) == 0 {
		return nil
	}
	go func() {
		select {
		case <-r.closing:
			r.hold(errClosing)
		case <-r.work.Done():
		}
	}()
	err = r.collect(r.submit(places))
	return errors.Join(err, r.leave())
}

// left counts what is recorded already and returns the places of what is not.
func (r *chunkRun) left() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = ""
	var places []int
	for i, res := range r.journal.Results {
		if res == nil {
			places = append(places, i)
		} else {
			r.tally.Add(r.tasks.Lines[i], res)
		}
	}
	return places
}

// errClosing says that the worker is about to stop.
var errClosing = errors.New("the worker stops")

// take reads the chunk and what is recorded of it, and takes what is left upon
// this attempt.
func (r *chunkRun) take(ctx context.Context) error {
	tasks, err := batch.Load(ctx, r.of.cfg.Store, &r.in.Chunk)
	if err != nil {
		return err
	}
	j, err := batch.ReadJournal(ctx, r.of.cfg.Store, &r.in.Chunk)
	if err != nil {
		return err
	}
	j.Lines = tasks.Lines
	if j.Missing() > 0 {
		if err := j.Take(ctx); err != nil {
			return err
		}
	}
	r.tasks, r.journal, r.earlier = tasks, j, j.Doubt
	r.handed = make([]atomic.Bool, len(tasks.Tasks))
	r.places = make(map[string]int, len(tasks.Tasks))
	for i := range tasks.Tasks {
		r.places[tasks.Tasks[i].ID] = i
	}
	return nil
}

// submit hands the tasks at places to the executor, as many at once and as fast
// as the chunk may, and returns their results.
func (r *chunkRun) submit(places []int) <-chan task.Result {
	tasks := make([]task.Task, len(places))
	parent, _ := tracing.Parent(r.work)
	for i, place := range places {
		tasks[i] = r.tasks.Tasks[place]
		tasks[i].Origin.TraceParent = parent
	}
	lanes := r.in.Concurrency
	if lanes == 0 && r.in.Rate == 0 {
		for _, place := range places {
			r.handed[place].Store(true)
		}
		return r.of.cfg.Executor.SubmitBatch(r.work, tasks)
	}
	if lanes == 0 {
		lanes = len(tasks)
	}
	limit := rate.NewLimiter(rate.Inf, 1)
	if r.in.Rate > 0 {
		limit.SetLimit(rate.Limit(r.in.Rate))
		limit.Allow() // each chunk begins with an empty bucket, or they would add up
	}
	out := make(chan task.Result)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(lanes, len(tasks)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(tasks) || limit.Wait(r.feed) != nil || r.feed.Err() != nil {
					return
				}
				r.handed[places[i]].Store(true)
				for res := range r.of.cfg.Executor.SubmitBatch(r.work, tasks[i:i+1]) {
					out <- res
				}
			}
		})
	}
	go func() {
		wg.Wait()
		close(out)
	}()
	return out
}

// collect records results as they come, a group at a time. It takes all of them
// even where they can no longer be recorded.
func (r *chunkRun) collect(results <-chan task.Result) error {
	var group []batch.Entry
	var failed error
	flush := func() {
		if len(group) > 0 && failed == nil {
			failed = r.record(group)
		}
		group = nil
	}
	due := time.NewTimer(flushEvery)
	due.Stop()
	defer due.Stop()
	for {
		select {
		case res, more := <-results:
			if !more {
				flush()
				return failed
			}
			if e, ok := r.entry(&res); ok {
				if group = append(group, e); len(group) == 1 {
					due.Reset(flushEvery)
				}
			}
			if len(group) >= flushMost {
				flush()
			}
		case <-due.C:
			flush()
		}
	}
}

// entry is what is recorded of a result; not ok where nothing is. What ended
// because this attempt did, other than by a cancel of the batch, is for another
// attempt to find out.
func (r *chunkRun) entry(res *task.Result) (batch.Entry, bool) {
	place, known := r.places[res.ID]
	if !known {
		r.log.Error("the executor answered for a task that it was not given", zap.String("task", res.ID))
		return batch.Entry{}, false
	}
	stop := r.stopped()
	cancelled := stop != nil && stop.kind == stopCancelled
	e := batch.Entry{Place: place, Result: *res}
	switch {
	case res.Status == task.Skipped && r.earlier[place]:
		if !cancelled {
			return e, false // what an earlier attempt did is still in doubt
		}
		e.Result = batch.Doubtful(&r.tasks.Tasks[place], "the batch was cancelled")
	case res.Status == task.Skipped:
		e.Back = !cancelled
		r.handed[place].Store(cancelled)
	case res.Status == task.Failed && !cancelled && (stop != nil || handedBack(res)):
		return e, false
	default:
		e.Result.Retried = res.Retried || r.earlier[place]
	}
	return e, true
}

// handedBack reports whether a task was ended by an executor that closes.
func handedBack(r *task.Result) bool {
	return r.Error != nil && r.Error.Trigger == run.TriggerMaintenance
}

// record records a group of results, waiting for a store that is away.
func (r *chunkRun) record(group []batch.Entry) error {
	// A cancel does not end it at once: what is done is to be accounted for.
	ctx, cancel := outlive(r.work, recordWithin)
	defer cancel()
	err := batch.Patiently(ctx, r.away, func(ctx context.Context) error { return r.journal.Record(ctx, group) })
	if err != nil {
		r.stop(&stopError{stopShutdown, awayCause(err)})
		return fmt.Errorf("recording what tasks came to: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = ""
	for i := range group {
		if !group[i].Back {
			r.tally.Add(r.tasks.Lines[group[i].Place], &group[i].Result)
		}
	}
	return nil
}

// leave looks after what has no result when the attempt ends. Of a batch that
// was cancelled, tasks that may have been done are recorded as such.
func (r *chunkRun) leave() error {
	stop := r.stopped()
	if stop == nil {
		if n := r.journal.Missing(); n > 0 {
			return fmt.Errorf("%d tasks were given back unfinished", n)
		}
		return nil
	}
	if stop.kind != stopCancelled {
		return nil
	}
	var doubtful []batch.Entry
	for i, res := range r.journal.Results {
		if res == nil && (r.earlier[i] || r.handed[i].Load()) {
			doubtful = append(doubtful, batch.Entry{Place: i, Result: batch.Doubtful(&r.tasks.Tasks[i], "the batch was cancelled")})
		}
	}
	if len(doubtful) == 0 {
		return nil
	}
	return r.record(doubtful)
}

// account is the tally of the chunk: what has no result has not started.
func (r *chunkRun) account() *batch.Tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally
	t.NotStarted += r.in.Chunk.Tasks - t.Sum()
	return &t
}

// progress is what a heartbeat shows.
func (r *chunkRun) progress() ChunkProgress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return ChunkProgress{Tasks: r.in.Chunk.Tasks, Counts: r.tally.Counts, Waiting: r.waiting}
}

func (r *chunkRun) wait(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = why
}

// away notes that the store does not answer.
func (r *chunkRun) away(err error) {
	r.wait("the store: " + err.Error())
	r.of.away(err)
}

// outlive is a context that ends some time after ctx.
func outlive(ctx context.Context, by time.Duration) (_ context.Context, end func()) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() {
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(ctx))
		case <-out.Done():
		}
	})
	return out, func() { cancel(nil) }
}
