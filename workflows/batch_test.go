package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/batch"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/workflows"
)

// bulkWorld stands in for what the activities of a batch touch.
type bulkWorld struct {
	// chunk says how a chunk ends; nil: all its tasks succeed.
	chunk  func(ctx context.Context, in activities.ChunkInput) (*batch.Tally, error)
	settle func(in activities.SettleChunksInput) (*batch.Tally, error)

	mu      sync.Mutex
	chunks  map[int]activities.ChunkInput
	now     map[int]int // concurrency of the chunks that run
	most    int         // chunks that ran at once
	busiest int         // the concurrency that these had together
	settled []activities.SettleChunksInput
	told    []activities.NotifyInput
}

func (w *bulkWorld) RunChunk(ctx context.Context, in activities.ChunkInput) (*batch.Tally, error) {
	w.mu.Lock()
	if w.chunks == nil {
		w.chunks, w.now = map[int]activities.ChunkInput{}, map[int]int{}
	}
	w.chunks[in.Chunk.Index] = in
	w.now[in.Chunk.Index] = in.Concurrency
	w.most = max(w.most, len(w.now))
	sum := 0
	for _, c := range w.now {
		sum += c
	}
	w.busiest = max(w.busiest, sum)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.now, in.Chunk.Index)
	}()
	if w.chunk != nil {
		return w.chunk(ctx, in)
	}
	return succeeded(in.Chunk.Tasks), nil
}

func (w *bulkWorld) SettleChunks(_ context.Context, in activities.SettleChunksInput) (*batch.Tally, error) {
	w.mu.Lock()
	w.settled = append(w.settled, in)
	w.mu.Unlock()
	return w.settle(in)
}

func (w *bulkWorld) Notify(_ context.Context, in activities.NotifyInput) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, in)
	return nil
}

func (*bulkWorld) CancelCause(context.Context, activities.CauseInput) (*activities.CancelCause, error) {
	return &activities.CancelCause{Cause: run.Cause{Trigger: run.TriggerUser, By: "ann@laptop", Message: "enough"}}, nil
}

func succeeded(n int) *batch.Tally { return &batch.Tally{Counts: batch.Counts{Succeeded: n}} }

func bulkEnv(t testing.TB, w *bulkWorld) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.RegisterWorkflowWithOptions(workflows.Batch, workflow.RegisterOptions{Name: batch.Workflow})
	env.RegisterWorkflowWithOptions(workflows.BatchPart, workflow.RegisterOptions{Name: batch.PartWorkflow})
	env.RegisterActivity(w)
	env.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Maybe()
	return env
}

func bulkInput(total, chunk int) batch.Input {
	return batch.Input{Folder: "batches/x", Total: total, ChunkSize: chunk, Tenant: "acme", Project: "web", File: "tasks.jsonl"}
}

// ended runs a batch to its end.
func ended(t testing.TB, env *testsuite.TestWorkflowEnvironment, in batch.Input) (*batch.Document, error) {
	t.Helper()
	env.ExecuteWorkflow(batch.Workflow, in)
	require.True(t, env.IsWorkflowCompleted())
	var d batch.Document
	err := env.GetWorkflowError()
	var canceled *temporal.CanceledError
	var app *temporal.ApplicationError
	switch {
	case err == nil:
		require.NoError(t, env.GetWorkflowResult(&d))
	case errors.As(err, &canceled):
		require.NoError(t, canceled.Details(&d))
	case errors.As(err, &app):
		require.NoError(t, app.Details(&d))
	}
	require.Equal(t, d.Total, d.Sum(), "the counts add up")
	return &d, err
}

func TestBatchRunsEachChunkOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		total, size, concurrency int
		rate                     float64
		window, together         int
	}{
		{total: 1, size: 250, window: 1},
		{total: 1000, size: 250, window: 4},
		{total: 250 * 16, size: 250, window: 16},
		{total: 9999, size: 100, window: 16},
		{total: 2501, size: 10, window: 16},
		{total: 1000, size: 10, concurrency: 1, window: 1, together: 1},
		{total: 1000, size: 10, concurrency: 3, window: 3, together: 3},
		{total: 1000, size: 10, concurrency: 17, window: 16, together: 17},
		{total: 1000, size: 250, concurrency: 50, window: 4, together: 50},
		{total: 1000, size: 10, concurrency: 1000, window: 16, together: 1000},
		{total: 1000, size: 10, rate: 5, window: 1},
		{total: 1000, size: 10, rate: 35, window: 3},
		{total: 1000, size: 10, rate: 35, concurrency: 2, window: 2, together: 2},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			w := &bulkWorld{}
			in := bulkInput(c.total, c.size)
			in.Concurrency, in.Rate = c.concurrency, c.rate
			d, err := ended(t, bulkEnv(t, w), in)
			require.NoError(t, err)
			require.Equal(t, run.Succeeded, d.Status)
			require.Equal(t, batch.Counts{Succeeded: c.total}, d.Counts)
			require.NotNil(t, d.Failures)
			require.Len(t, w.chunks, in.Chunks())
			rates := 0.0
			for k := range in.Chunks() {
				want := batch.ChunkOf(d.Ref(), k, c.size, c.total)
				require.Equal(t, want, w.chunks[k].Chunk)
				rates = w.chunks[k].Rate * float64(c.window)
			}
			require.LessOrEqual(t, w.most, c.window)
			require.LessOrEqual(t, w.busiest, c.together)
			require.InDelta(t, c.rate, rates, 0.001)
		})
	}
}

func TestBatchWithFailuresFails(t *testing.T) {
	t.Parallel()
	w := &bulkWorld{chunk: func(_ context.Context, in activities.ChunkInput) (*batch.Tally, error) {
		out := succeeded(in.Chunk.Tasks - 1)
		out.Failed, out.Retried = 1, 2
		out.Failures = []batch.Failure{{Line: in.Chunk.First + 1, ID: "x"}}
		return out, nil
	}}
	env := bulkEnv(t, w)
	in := bulkInput(1000, 10)
	in.Notify = &spec.Notify{Webhook: "http://example.com"}
	d, err := ended(t, env, in)
	require.ErrorContains(t, err, "100 of 1000 tasks failed")
	require.Equal(t, run.Failed, d.Status)
	require.Equal(t, batch.Counts{Succeeded: 900, Failed: 100, Retried: 200}, d.Counts)
	require.Len(t, d.Failures, 10, "samples only")
	require.Len(t, w.told, 1)
	require.Equal(t, activities.EventBatchEnded, w.told[0].Notice.Event)
	require.Equal(t, d.Counts, w.told[0].Notice.Batch.Counts)
}

// A chunk that is gone from the store counts as failed, and stops no other.
func TestLostChunk(t *testing.T) {
	t.Parallel()
	w := &bulkWorld{
		chunk: func(_ context.Context, in activities.ChunkInput) (*batch.Tally, error) {
			if in.Chunk.Index == 3 {
				return nil, temporal.NewNonRetryableApplicationError("not there", string(run.TriggerDependencyUnavailable), nil)
			}
			return succeeded(in.Chunk.Tasks), nil
		},
		settle: func(in activities.SettleChunksInput) (*batch.Tally, error) {
			return &batch.Tally{Counts: batch.Counts{Failed: in.Chunks[0].Tasks}}, nil
		},
	}
	d, err := ended(t, bulkEnv(t, w), bulkInput(100, 10))
	require.Error(t, err)
	require.Equal(t, batch.Counts{Succeeded: 90, Failed: 10}, d.Counts)
	require.Equal(t, []string{"tasks 31–40: not there"}, d.Notes)
	require.Len(t, w.settled, 1)
	require.True(t, w.settled[0].Lost)
}

func TestBatchThatContinuesAsANewRun(t *testing.T) {
	t.Parallel()
	in := bulkInput(12_000, 1) // 120 parts
	parts := map[int]bool{}
	runs := 0
	for {
		runs++
		env := bulkEnv(t, &bulkWorld{})
		env.OnWorkflow(batch.PartWorkflow, mock.Anything, mock.Anything).Return(
			func(_ workflow.Context, p batch.PartInput) (*batch.Tally, error) {
				require.False(t, parts[p.First])
				parts[p.First] = true
				require.Equal(t, 100, p.Chunks)
				return succeeded(p.Chunks), nil
			})
		env.ExecuteWorkflow(batch.Workflow, in)
		var next *workflow.ContinueAsNewError
		if err := env.GetWorkflowError(); !errors.As(err, &next) {
			require.NoError(t, err)
			var d batch.Document
			require.NoError(t, env.GetWorkflowResult(&d))
			require.Equal(t, batch.Counts{Succeeded: 12_000}, d.Counts)
			break
		}
		started := in.Carried
		in = batch.Input{}
		require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
		if started != nil {
			require.Equal(t, started.StartedAt, in.Carried.StartedAt)
		}
	}
	require.Equal(t, 3, runs)
	require.Len(t, parts, 120)
}

func TestCancelledBatchAccountsForAll(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	var env *testsuite.TestWorkflowEnvironment
	var once sync.Once
	w := &bulkWorld{
		chunk: func(_ context.Context, in activities.ChunkInput) (*batch.Tally, error) {
			if in.Chunk.Index < 20 {
				return succeeded(in.Chunk.Tasks), nil
			}
			once.Do(func() {
				env.CancelWorkflow()
				close(began)
			})
			<-began
			if in.Chunk.Index%2 == 0 {
				return nil, temporal.NewCanceledError() // as one that waited for its next attempt
			}
			return nil, temporal.NewCanceledError(batch.Tally{Counts: batch.Counts{Succeeded: 1, Skipped: 2, NotStarted: in.Chunk.Tasks - 3}})
		},
		settle: func(in activities.SettleChunksInput) (*batch.Tally, error) {
			out := &batch.Tally{}
			for _, c := range in.Chunks {
				out.Failed++
				out.NotStarted += c.Tasks - 1
			}
			return out, nil
		},
	}
	env = bulkEnv(t, w)
	in := bulkInput(10_000, 10)
	in.Notify = &spec.Notify{Command: "true"}
	d, err := ended(t, env, in)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.Equal(t, run.Cancelled, d.Status)
	require.Equal(t, &run.Cause{Trigger: run.TriggerUser, By: "ann@laptop", Message: "enough"}, d.Cause)
	require.Positive(t, d.Succeeded)
	require.Positive(t, d.NotStarted)
	require.Less(t, len(w.chunks), 100, "it begins no more")
	require.Len(t, w.told, 1)
}

// A part whose workflow was terminated is accounted for by what is recorded.
func TestTerminatedPart(t *testing.T) {
	t.Parallel()
	w := &bulkWorld{settle: func(in activities.SettleChunksInput) (*batch.Tally, error) {
		return &batch.Tally{Counts: batch.Counts{Succeeded: 1, NotStarted: len(in.Chunks)*10 - 1}}, nil
	}}
	env := bulkEnv(t, w)
	env.OnWorkflow(batch.PartWorkflow, mock.Anything, mock.Anything).Return(
		func(_ workflow.Context, p batch.PartInput) (*batch.Tally, error) {
			if p.First == 0 {
				return nil, errors.New("terminated")
			}
			return succeeded(p.Chunks * 10), nil
		})
	d, err := ended(t, env, bulkInput(1000, 10))
	require.ErrorContains(t, err, "499 of 1000 tasks did not run")
	require.Equal(t, batch.Counts{Succeeded: 501, NotStarted: 499}, d.Counts)
	require.Equal(t, run.Failed, d.Status)
	require.Len(t, d.Notes, 1)
}

func TestBatchTellsHowItStands(t *testing.T) {
	t.Parallel()
	var env *testsuite.TestWorkflowEnvironment
	var seen batch.Progress
	w := &bulkWorld{chunk: func(_ context.Context, in activities.ChunkInput) (*batch.Tally, error) {
		if in.Chunk.Index == 30 {
			got, err := env.QueryWorkflow(batch.StatusQuery)
			if err != nil {
				return nil, err
			}
			if err := got.Get(&seen); err != nil {
				return nil, err
			}
		}
		return succeeded(in.Chunk.Tasks), nil
	}}
	env = bulkEnv(t, w)
	_, err := ended(t, env, bulkInput(1000, 10))
	require.NoError(t, err)
	require.Equal(t, run.Running, seen.Document.Status)
	require.Equal(t, 1000, seen.Document.Sum())
	require.NotEmpty(t, seen.Parts)
}
