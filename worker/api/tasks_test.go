package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"belay.run/internal/executor"
	"belay.run/internal/metrics"
	"belay.run/internal/run"
	"belay.run/internal/task"
)

func TestTasks(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})

	t.Run("Succeed", func(t *testing.T) {
		t.Parallel()
		a := b.task(t, `{"id":"a","type":"noop"}`)
		require.Equal(t, http.StatusOK, a.StatusCode, a.text)
		require.Equal(t, "application/json", a.Header.Get("Content-Type"))
		r := decode[task.Result](t, a)
		require.Equal(t, "a", r.ID)
		require.Equal(t, task.Succeeded, r.Status)
	})

	t.Run("ThatFailAreAnsweredToo", func(t *testing.T) {
		t.Parallel()
		a := b.task(t, `{"type":"noop","with":{"sleep":"1h"},"timeout":"10ms"}`)
		require.Equal(t, http.StatusOK, a.StatusCode, a.text)
		r := decode[task.Result](t, a)
		require.NotEmpty(t, r.ID)
		require.Equal(t, task.Failed, r.Status)
		require.Equal(t, run.TriggerStepTimeout, r.Error.Trigger)
	})

	for name, bad := range map[string]struct{ text, want string }{
		"Nothing":       {"", "found nothing"},
		"NoJSON":        {"{", "does not end"},
		"Two":           {`{"type":"noop"}{}`, "more after it"},
		"UnknownField":  {`{"type":"noop","kind":1}`, `unknown field "kind"`},
		"UnknownType":   {`{"type":"nop"}`, "did you mean noop?"},
		"NoType":        {`{}`, "type: is missing"},
		"BadParameter":  {`{"type":"noop","with":{"sleep":"soon"}}`, "sleep"},
		"BadTimeout":    {`{"type":"noop","timeout":"1h"}`, "timeout"},
		"KeyAndNoRedis": {`{"type":"noop","key":"k"}`, "no Redis"},
		"EmptyID":       {`{"type":"noop","id":""}`, "id: expected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, problem(t, b.task(t, bad.text), http.StatusBadRequest, "invalid_task").Detail, bad.want)
		})
	}

	t.Run("OfABadTenant", func(t *testing.T) {
		t.Parallel()
		problem(t, b.task(t, `{"type":"noop","tenant":"a/b"}`), http.StatusBadRequest, "bad_request")
		problem(t, b.task(t, `{"type":"noop","project":"a b"}`), http.StatusBadRequest, "bad_request")
		problem(t, b.task(t, `{"type":"noop","run":"`+strings.Repeat("r", 201)+`"}`), http.StatusBadRequest, "bad_request")
		problem(t, b.task(t, `{"type":"noop"}`, "Idempotency-Key", "a b"), http.StatusBadRequest, "bad_request")
	})

	t.Run("TooLarge", func(t *testing.T) {
		t.Parallel()
		text := `{"type":"noop","key":"` + strings.Repeat("k", maxTask) + `"}`
		problem(t, b.task(t, text), http.StatusRequestEntityTooLarge, "too_large")
		// The same without its length in front.
		a := b.ask(t, http.MethodPost, "/api/v1/tasks", struct{ *strings.Reader }{strings.NewReader(text)}, "Content-Type", "application/json")
		problem(t, a, http.StatusRequestEntityTooLarge, "too_large")
	})

	t.Run("OfAnotherKind", func(t *testing.T) {
		t.Parallel()
		for _, headers := range [][]string{{"Content-Type", "text/plain"}, {}, {"Content-Type", "application/json", "Content-Encoding", "gzip"}} {
			a := b.ask(t, http.MethodPost, "/api/v1/tasks", strings.NewReader(`{"type":"noop"}`), headers...)
			problem(t, a, http.StatusUnsupportedMediaType, "unsupported_media_type")
		}
		require.Equal(t, http.StatusOK, b.task(t, `{"type":"noop"}`, "Accept", "*/*").StatusCode)
	})
}

// What a request says of itself goes with its task.
func TestOriginOfATask(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	b.gates.open()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	a := b.task(t, `{"type":"gate","tenant":"shop","project":"web","pipeline":"deploy","run":"r1"}`, "Traceparent", parent, "Idempotency-Key", "k-1")
	require.Equal(t, http.StatusOK, a.StatusCode, a.text)
	first := <-b.gates.began
	require.True(t, strings.HasPrefix(first.Node, "http/"))
	want := task.Origin{
		Tenant: "shop", Project: "web", Pipeline: "deploy", Run: "r1", Node: first.Node, TraceParent: parent, Sender: "http@127.0.0.1", IdempotencyKey: "k-1",
	}
	require.Equal(t, want, first)

	for _, bad := range []string{"", "00-x", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"} {
		require.Equal(t, http.StatusOK, b.task(t, `{"type":"gate"}`, "Traceparent", bad).StatusCode)
		next := <-b.gates.began
		require.Regexp(t, traceParent, next.TraceParent)
		require.NotEqual(t, bad, next.TraceParent)
		require.NotEmpty(t, next.IdempotencyKey)
		require.NotEqual(t, first.Node, next.Node, "each request is its own")
		require.Equal(t, run.DefaultTenant, next.Tenant)
		require.Equal(t, run.DefaultProject, next.Project)
	}
}

// A task may take longer than what else the server answers.
func TestATaskThatTakesLonger(t *testing.T) {
	t.Parallel()
	b := setup(t, options{server: 100 * time.Millisecond, config: Config{times: times{read: patience, write: patience}}})
	a := b.task(t, `{"type":"noop","with":{"sleep":"500ms"}}`)
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.Equal(t, task.Succeeded, decode[task.Result](t, a).Status)
}

func TestAClientThatGoesAwayGivesItsTaskUp(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	conn := b.send(t, `{"type":"gate"}`)
	<-b.gates.began
	require.NoError(t, conn.Close())
	eventually(t, func() bool { return b.executor.Status().Running == 0 }, "the task ends though its gate is shut")
}

func TestASlowClient(t *testing.T) {
	t.Parallel()
	b := setup(t, options{config: Config{times: times{read: 100 * time.Millisecond}}})
	conn := b.raw(t, "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n"+`{"type":`)
	a := heard(t, conn)
	problem(t, a, http.StatusRequestTimeout, "timeout")
	require.True(t, a.Close)
}

func TestAFullQueue(t *testing.T) {
	t.Parallel()
	b := setup(t, options{limits: executor.Limits{Concurrency: 1, Queue: 1, Target: executor.Share{InFlight: -1, Queue: -1}}})
	first := b.send(t, `{"type":"gate"}`)
	<-b.gates.began
	second := b.send(t, `{"type":"gate"}`)
	eventually(t, func() bool { return b.executor.Status().Waiting == 1 }, "the second one waits")
	problem(t, b.task(t, `{"type":"gate"}`), http.StatusTooManyRequests, "queue_full")
	b.gates.open()
	require.Equal(t, http.StatusOK, heard(t, first).StatusCode)
	require.Equal(t, http.StatusOK, heard(t, second).StatusCode)
}

// A task that never begins is not answered as one that did.
func TestATaskThatWaitsTooLong(t *testing.T) {
	t.Parallel()
	b := setup(t, options{limits: executor.Limits{Concurrency: 1}, config: Config{times: times{task: 50 * time.Millisecond}}})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	held := make(chan error, 1)
	go func() {
		_, err := b.executor.Submit(ctx, task.Task{Type: "gate"})
		held <- err
	}()
	<-b.gates.began
	problem(t, b.task(t, `{"type":"noop"}`), http.StatusServiceUnavailable, "queue_full")
	cancel(errors.New("enough"))
	require.NoError(t, <-held)
}

func TestACrowdIsSentAway(t *testing.T) {
	t.Parallel()
	var crowded atomic.Bool
	b := setup(t, options{config: Config{Crowded: crowded.Load}})
	require.Equal(t, http.StatusOK, b.task(t, `{"type":"noop"}`).StatusCode)
	crowded.Store(true)
	a := b.task(t, `{"type":"noop"}`)
	problem(t, a, http.StatusServiceUnavailable, "crowded")
	require.True(t, a.Close, "the connection is of no more use")
	crowded.Store(false)
	require.Equal(t, http.StatusOK, b.task(t, `{"type":"noop"}`).StatusCode)
}

// hearing is an executor that tells what it was given.
type hearing chan task.Task

func (h hearing) Submit(_ context.Context, t task.Task) (task.Result, error) {
	h <- t
	return task.Result{ID: t.ID, Type: t.Type, Status: task.Duplicate}, nil
}

func (hearing) Status() executor.Status { return executor.Status{} }

// Who a duplicate was is for the executor to keep, which knows of what.
func TestTheExecutorHearsWhoSentATask(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	e := make(hearing, 1)
	b.Open(Services{Executor: e, Types: b.gates, Store: b.store, Batches: b.batches, Audit: b.audit})
	a := b.task(t, `{"type":"noop","key":"k","tenant":"shop"}`, "Idempotency-Key", "q-1")
	require.Equal(t, task.Duplicate, decode[task.Result](t, a).Status)
	o := (<-e).Origin
	require.Equal(t, []string{"shop", "default", "http@127.0.0.1", "q-1"}, []string{o.Tenant, o.Project, o.Sender, o.IdempotencyKey})
}

// Thousands of runs that each send a task make no series; package metrics tries it
// with a hundred thousand.
func TestTasksOfManyRunsMakeNoSeries(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	a := New(Config{})
	e, err := executor.New(executor.Config{Registry: newGates(), Observer: m.Light()})
	require.NoError(t, err)
	m.WatchExecutor(e.Status)
	a.Open(Services{Executor: e, Types: newGates()})
	series := func() int {
		rec := httptest.NewRecorder()
		m.Handler(zap.NewNop()).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
		return len(regexp.MustCompile(`(?m)^belay_`).FindAllString(rec.Body.String(), -1))
	}
	before := series()
	const n = 10_000
	for i := range n {
		text := fmt.Sprintf(`{"id":"t%d","type":"noop","tenant":"t%d","pipeline":"p%d","run":"r%d"}`, i, i, i, i)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/tasks", strings.NewReader(text))
		r.Header.Set("Content-Type", "application/json")
		rec := httptest.NewRecorder()
		a.ServeHTTP(rec, r)
		if rec.Code != http.StatusOK {
			require.Fail(t, rec.Body.String())
		}
	}
	require.Equal(t, before, series())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, e.Close(ctx))
}
