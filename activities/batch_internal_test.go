package activities

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"
	"pgregory.net/rapid"

	"belay.run/internal/batch"
	"belay.run/internal/run"
	"belay.run/internal/store"
	"belay.run/internal/task"
)

// hand is an executor that notes what it was given. Each task is answered by do;
// one that returns nothing waits until its context ends.
type hand struct {
	do func(t *task.Task) task.Status

	mu    sync.Mutex
	given []string
	keys  map[string][]string // idempotency keys by task
	now   int
	most  int
}

func (h *hand) SubmitBatch(ctx context.Context, tasks []task.Task) <-chan task.Result {
	out := make(chan task.Result, len(tasks))
	var wg sync.WaitGroup
	for _, t := range tasks {
		h.enter(&t)
		wg.Go(func() {
			defer h.leave()
			r := task.Result{ID: t.ID, Type: t.Type, Status: h.do(&t)}
			if r.Status == "" {
				<-ctx.Done()
				r.Status, r.Error = task.Failed, task.Failf(run.TriggerUser, "told to stop")
			}
			out <- r
		})
	}
	go func() {
		wg.Wait()
		close(out)
	}()
	return out
}

func (h *hand) enter(t *task.Task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given = append(h.given, t.ID)
	if h.keys == nil {
		h.keys = map[string][]string{}
	}
	h.keys[t.ID] = append(h.keys[t.ID], t.Origin.IdempotencyKey)
	h.now++
	h.most = max(h.most, h.now)
}

func (h *hand) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now--
}

func (h *hand) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(slices.Values(h.given))
}

func fine(*task.Task) task.Status { return task.Succeeded }

// refusing is a store that refuses some of what is asked of it.
type refusing struct {
	store.Store

	mu     sync.Mutex
	refuse int
}

func (s *refusing) Append(ctx context.Context, key string, off int64, p []byte) error {
	s.mu.Lock()
	refused := s.refuse > 0
	if refused {
		s.refuse--
	}
	s.mu.Unlock()
	if refused {
		return errors.New("away")
	}
	return s.Store.Append(ctx, key, off, p)
}

type always struct{}

func (always) Prepare(task.Task) (task.Job, error) { return nil, nil } //nolint:nilnil // nobody runs it

// packed is a store with a batch of one chunk.
func packed(t testing.TB, n int) (*refusing, batch.Chunk) {
	t.Helper()
	dir, err := store.Open(context.WithoutCancel(t.Context()), "file://"+t.TempDir(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dir.Close()) })
	st := &refusing{Store: dir}
	ref := batch.Ref{ID: "b", Folder: batch.NewFolder()}
	_, err = batch.Pack(t.Context(), strings.NewReader(strings.Repeat("{\"type\":\"noop\"}\n", n)), st, ref.Folder, n, always{})
	require.NoError(t, err)
	return st, batch.ChunkOf(ref, 0, n, n)
}

// attemptAt begins an attempt at a chunk.
func attemptAt(t testing.TB, st store.Store, c batch.Chunk, exec TaskExecutor, closing chan struct{}) *chunkRun {
	t.Helper()
	in := ChunkInput{Chunk: c}
	return newChunkRun(t.Context(), NewBatches(BatchesConfig{Store: st, Executor: exec}), &in, closing)
}

func counts(t testing.TB, st store.Store, c batch.Chunk) batch.Counts {
	t.Helper()
	j, err := batch.ReadJournal(t.Context(), st, &c)
	require.NoError(t, err)
	return j.Tally().Counts
}

func TestChunkRecordsEachResult(t *testing.T) {
	t.Parallel()
	st, c := packed(t, 50)
	h := &hand{do: func(x *task.Task) task.Status {
		switch x.ID {
		case "7":
			return task.Failed
		case "9":
			return task.Duplicate
		}
		return task.Succeeded
	}}
	r := attemptAt(t, st, c, h, nil)
	got, err := r.report(r.run())
	require.NoError(t, err)
	want := batch.Counts{Succeeded: 48, Failed: 1, Duplicate: 1}
	require.Equal(t, want, got.Counts)
	require.Equal(t, want, counts(t, st, c))
	require.Equal(t, 7, got.Failures[0].Line)

	// Another attempt, as after a completion that Temporal did not hear of, runs
	// nothing.
	again := attemptAt(t, st, c, h, nil)
	got, err = again.report(again.run())
	require.NoError(t, err)
	require.Equal(t, want, got.Counts)
	require.Len(t, h.all(), 50)
}

func TestChunkKeepsToItsConcurrency(t *testing.T) {
	t.Parallel()
	st, c := packed(t, 60)
	h := &hand{do: fine}
	r := attemptAt(t, st, c, h, nil)
	r.in.Concurrency = 3
	got, err := r.report(r.run())
	require.NoError(t, err)
	require.Equal(t, 60, got.Succeeded)
	require.LessOrEqual(t, h.most, 3)
}

func TestChunkGoesOnWhereAKilledWorkerLeft(t *testing.T) {
	t.Parallel()
	st, c := packed(t, 10)
	j, err := batch.ReadJournal(t.Context(), st, &c)
	require.NoError(t, err)
	require.NoError(t, j.Take(t.Context()))
	require.NoError(t, j.Record(t.Context(), []batch.Entry{
		{Place: 0, Result: task.Result{ID: "1", Status: task.Succeeded}},
		{Place: 4, Result: task.Result{ID: "5", Status: task.Failed}},
		{Place: 5, Back: true},
	}))
	h := &hand{do: fine}
	r := attemptAt(t, st, c, h, nil)
	got, err := r.report(r.run())
	require.NoError(t, err)
	require.Equal(t, batch.Counts{Succeeded: 9, Failed: 1, Retried: 7}, got.Counts, "one that was given back is not in doubt")
	require.Equal(t, []string{"10", "2", "3", "4", "6", "7", "8", "9"}, h.all(), "what is recorded is not repeated")
	require.Equal(t, []string{batch.IdempotencyKey("b", "2")}, h.keys["2"])

	// The attempt that was taken for dead records nothing.
	require.ErrorIs(t, j.Record(t.Context(), []batch.Entry{{Place: 1, Result: task.Result{ID: "2", Status: task.Failed}}}), batch.ErrTaken)
}

func TestChunkWaitsForAStoreThatIsAway(t *testing.T) {
	t.Parallel()
	st, c := packed(t, 10)
	st.refuse = 2 // when it takes the chunk
	h := &hand{do: func(*task.Task) task.Status {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.refuse == 0 {
			st.refuse = 3 // and when it records
		}
		return task.Succeeded
	}}
	r := attemptAt(t, st, c, h, nil)
	got, err := r.report(r.run())
	require.NoError(t, err)
	require.Equal(t, batch.Counts{Succeeded: 10}, got.Counts)
	require.Len(t, h.all(), 10)
}

func TestChunkWhoseTasksAreGone(t *testing.T) {
	t.Parallel()
	st, c := packed(t, 10)
	require.NoError(t, st.Delete(t.Context(), c.Batch.Folder))
	r := attemptAt(t, st, c, &hand{do: fine}, nil)
	_, err := r.report(r.run())
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.True(t, app.NonRetryable())
}

// cancelledAt is an attempt that is stopped once so many tasks have ended.
func cancelledAt(t testing.TB, st store.Store, c batch.Chunk, ended, lanes int, kind stopKind) (*chunkRun, error) {
	t.Helper()
	var r *chunkRun
	var mu sync.Mutex
	n := 0
	h := &hand{do: func(*task.Task) task.Status {
		mu.Lock()
		defer mu.Unlock()
		if n++; n <= ended {
			return task.Succeeded
		}
		r.stop(&stopError{kind, run.Cause{Trigger: run.TriggerUser}})
		return ""
	}}
	r = attemptAt(t, st, c, h, nil)
	r.in.Concurrency = lanes
	return r, r.run()
}

func TestCancelledChunkAccountsForAll(t *testing.T) {
	t.Parallel()
	st, c := packed(t, 40)
	r, err := cancelledAt(t, st, c, 10, 4, stopCancelled)
	_, err = r.report(err)
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	got := r.account()
	require.Equal(t, 10, got.Succeeded)
	require.Positive(t, got.Failed, "what ran was told to stop")
	require.LessOrEqual(t, got.Failed, 4)
	require.Equal(t, 40, got.Sum())
	require.Equal(t, got.Counts, counts(t, st, c), "the records say the same")
}

// An attempt that its worker ends, rather than a cancel, leaves what it had not
// finished to the next.
func TestStoppedWorkerLosesNothing(t *testing.T) {
	t.Parallel()
	st, c := packed(t, 40)
	r, err := cancelledAt(t, st, c, 10, 0, stopShutdown)
	_, err = r.report(err)
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.False(t, app.NonRetryable())
	require.Equal(t, batch.Counts{Succeeded: 10, NotStarted: 30}, counts(t, st, c))
	next := attemptAt(t, st, c, &hand{do: fine}, nil)
	got, err := next.report(next.run())
	require.NoError(t, err)
	require.Equal(t, batch.Counts{Succeeded: 40, Retried: 30}, got.Counts)
}

func TestClosingWorkerHandsOutNoMore(t *testing.T) {
	t.Parallel()
	st, c := packed(t, 40)
	closing := make(chan struct{})
	var once sync.Once
	var r *chunkRun
	h := &hand{do: func(*task.Task) task.Status {
		once.Do(func() { close(closing) })
		<-r.feed.Done()
		return task.Succeeded
	}}
	r = attemptAt(t, st, c, h, closing)
	r.in.Concurrency = 5
	_, err := r.report(r.run())
	require.ErrorContains(t, err, "tasks were given back unfinished")
	got := counts(t, st, c)
	require.LessOrEqual(t, got.Succeeded, 5)
	require.Equal(t, batch.Counts{Succeeded: got.Succeeded, NotStarted: 40 - got.Succeeded}, got)
}

// Whatever an executor does, and however often an attempt is stopped, each task
// is recorded once and the counts add up.
func TestAttemptsOfAllKindsLoseNothing(t *testing.T) {
	t.Parallel()
	const n = 20
	rapid.Check(t, func(rt *rapid.T) {
		st, c := packed(t, n)
		for range rapid.IntRange(0, 4).Draw(rt, "attempts") {
			r, err := cancelledAt(t, st, c, rapid.IntRange(0, n).Draw(rt, "ended"), rapid.IntRange(0, 3).Draw(rt, "lanes"), stopShutdown)
			_, _ = r.report(err) // it ended early, or it did not
		}
		var r *chunkRun
		var err error
		cancelled := rapid.Bool().Draw(rt, "cancelled")
		if cancelled {
			r, err = cancelledAt(t, st, c, rapid.IntRange(0, n).Draw(rt, "last"), 2, stopCancelled)
		} else {
			r = attemptAt(t, st, c, &hand{do: fine}, nil)
			err = r.run()
		}
		if err != nil {
			rt.Fatalf("the last attempt: %v", err)
		}
		if got := r.account(); got.Sum() != n || got.Counts != counts(t, st, c) || !cancelled && got.Succeeded != n {
			rt.Fatalf("counted %+v, recorded %+v", got.Counts, counts(t, st, c))
		}
	})
}

func TestSettlingMakesTheAccount(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (*refusing, batch.Chunk, *Batches) {
		t.Helper()
		st, c := packed(t, 6)
		return st, c, NewBatches(BatchesConfig{Store: st})
	}
	begin := func(t *testing.T, st store.Store, c *batch.Chunk) *batch.Journal {
		t.Helper()
		j, err := batch.ReadJournal(t.Context(), st, c)
		require.NoError(t, err)
		require.NoError(t, j.Take(t.Context()))
		require.NoError(t, j.Record(t.Context(), []batch.Entry{{Place: 0, Result: task.Result{ID: "1", Status: task.Succeeded}}, {Place: 1, Back: true}}))
		return j
	}
	t.Run("NeverBegun", func(t *testing.T) {
		t.Parallel()
		_, c, b := setup(t)
		got, err := b.settle(t.Context(), &c, &SettleChunksInput{Why: "cancelled"})
		require.NoError(t, err)
		require.Equal(t, batch.Counts{NotStarted: 6}, got.Counts)
	})
	t.Run("InDoubt", func(t *testing.T) {
		t.Parallel()
		st, c, b := setup(t)
		j := begin(t, st, &c)
		got, err := b.settle(t.Context(), &c, &SettleChunksInput{Why: "cancelled"})
		require.NoError(t, err)
		require.Equal(t, batch.Counts{Succeeded: 1, Failed: 4, NotStarted: 1}, got.Counts)
		require.Equal(t, run.TriggerWorkerLost, got.Failures[0].Trigger)
		require.ErrorIs(t, j.Record(t.Context(), []batch.Entry{{Place: 2, Result: task.Result{ID: "3"}}}), batch.ErrTaken)
		again, err := b.settle(t.Context(), &c, &SettleChunksInput{Why: "cancelled"})
		require.NoError(t, err)
		require.Equal(t, got.Counts, again.Counts, "twice is as once")
	})
	t.Run("Lost", func(t *testing.T) {
		t.Parallel()
		st, c, b := setup(t)
		begin(t, st, &c)
		require.NoError(t, st.Delete(t.Context(), c.Batch.Folder+"/tasks"))
		got, err := b.settle(t.Context(), &c, &SettleChunksInput{Why: "gone", Lost: true})
		require.NoError(t, err)
		require.Equal(t, batch.Counts{Succeeded: 1, Failed: 5}, got.Counts)
		require.Equal(t, []string{"tasks 1–6: gone"}, got.Notes)
	})
}

func TestPulse(t *testing.T) {
	t.Parallel()
	setup := func(ctx context.Context, beat func(context.Context) error) *stopError {
		stopped := make(chan *stopError, 1)
		p := &pulse{every: time.Millisecond, silence: 50 * time.Millisecond, beat: beat, stop: func(e *stopError) {
			select {
			case stopped <- e:
			default:
			}
		}}
		defer p.start(ctx)()
		select {
		case e := <-stopped:
			return e
		case <-time.After(time.Minute):
			return nil
		}
	}
	t.Run("Cancelled", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, stopCancelled, setup(t.Context(), func(context.Context) error { return temporal.NewCanceledError() }).kind)
	})
	t.Run("Closed", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, stopClosed, setup(t.Context(), func(context.Context) error { return serviceerror.NewNotFound("closed") }).kind)
	})
	t.Run("AFewFailuresAreNone", func(t *testing.T) {
		t.Parallel()
		n := 0
		require.Equal(t, stopCancelled, setup(t.Context(), func(context.Context) error {
			if n++; n == 20 {
				return temporal.NewCanceledError()
			}
			if n%3 == 0 {
				return nil
			}
			return errors.New("no answer")
		}).kind)
	})
	t.Run("Silence", func(t *testing.T) {
		t.Parallel()
		stop := setup(t.Context(), func(context.Context) error { return errors.New("no answer") })
		require.Equal(t, stopShutdown, stop.kind)
		require.Contains(t, stop.cause.Message, "Temporal has not answered")
	})
	t.Run("Pushed", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(temporal.NewCanceledError())
		require.Equal(t, stopCancelled, setup(ctx, func(context.Context) error { return nil }).kind)
	})
}
