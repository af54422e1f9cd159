package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

func TestNothingIsTakenBeforeTheWorkerHasStarted(t *testing.T) {
	t.Parallel()
	b := setup(t, options{shut: true})
	problem(t, b.task(t, `{"type":"noop"}`), http.StatusServiceUnavailable, "starting")
	problem(t, b.ask(t, http.MethodGet, batchPath+"x", http.NoBody), http.StatusServiceUnavailable, "starting")
}

// A worker that drains ends what it has taken, and takes no more.
func TestDrainWhileATaskRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	sent := b.send(t, `{"type":"gate"}`)
	<-b.gates.began
	b.Refuse()
	a := b.task(t, `{"type":"noop"}`)
	problem(t, a, http.StatusServiceUnavailable, "closing")
	require.True(t, a.Close, "the next request may find another worker")
	problem(t, b.batch(t, "", strings.NewReader(lines(1))), http.StatusServiceUnavailable, "closing")
	require.Equal(t, http.StatusOK, b.ask(t, http.MethodGet, "/api/v1/executor/status", http.NoBody).StatusCode)

	over, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	b.Wait(over) // it returns, and the task goes on
	b.gates.open()
	a = heard(t, sent)
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.Equal(t, task.Succeeded, decode[task.Result](t, a).Status)
	b.Wait(t.Context())
}

// What runs when the worker stops at once is answered too.
func TestStopWhileTasksRunAndWait(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	sent := b.send(t, `{"type":"gate","timeout":"10m"}`)
	<-b.gates.began
	now, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	require.Error(t, b.executor.Close(now))
	a := heard(t, sent)
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.Equal(t, run.TriggerMaintenance, decode[task.Result](t, a).Error.Trigger)
	problem(t, b.task(t, `{"type":"noop"}`), http.StatusServiceUnavailable, "closing")
}

// A batch that is on its way when the worker stops leaves nothing.
func TestStopWhileABatchComes(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(ctx context.Context, b *testBundle){
		"AtOnce": func(_ context.Context, b *testBundle) { b.Close() },
		"AfterTheDrain": func(ctx context.Context, b *testBundle) {
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			b.Refuse()
			b.Wait(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, options{})
			c := b.raw(t, batchHead+"Transfer-Encoding: chunked\r\n\r\n"+chunked(lines(600)))
			b.reaches(t, 2)
			stop(t.Context(), b)
			problem(t, heard(t, c), http.StatusServiceUnavailable, "closing")
			require.Empty(t, b.stored(t))
			require.Empty(t, b.batches.started())
		})
	}
}
