package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"belay.run/internal/audit"
	"belay.run/internal/batch"
	"belay.run/internal/batch/control"
	"belay.run/internal/executor"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/store"
	"belay.run/internal/task"
	"belay.run/internal/task/types"
)

// patience is far longer than anything here takes.
const patience = time.Minute

// testBundle is an API that listens, and what stands behind it.
type testBundle struct {
	*API

	url, address string
	executor     *executor.Executor
	gates        *gates
	store        store.Store
	batches      *fakeBatches
	audit        *fakeAudit
}

type options struct {
	limits executor.Limits
	config Config
	// secrets are those of the worker, and grants who may use them.
	secrets secrets
	grants  []secret.Grant
	shut    bool // nothing is behind it
	// server is what the server lets a client take where the API says nothing.
	server time.Duration
}

// setup has an API listen as the worker has it.
func setup(t *testing.T, o options) *testBundle {
	t.Helper()
	b := &testBundle{gates: newGates(), batches: &fakeBatches{batches: map[string]batch.Document{}}, audit: &fakeAudit{}}
	var err error
	b.executor, err = executor.New(executor.Config{Registry: b.gates, Limits: o.limits})
	require.NoError(t, err)
	b.store, err = store.Open(t.Context(), "file://"+t.TempDir(), nil)
	require.NoError(t, err)
	o.config.Logger = zaptest.NewLogger(t)
	b.API = New(o.config)
	if !o.shut {
		b.Open(Services{Executor: b.executor, Types: b.gates, Secrets: secret.NewVault(o.secrets, o.grants...), Store: b.store, Batches: b.batches, Audit: b.audit})
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b.address = l.Addr().String()
	b.url = "http://" + b.address
	server := &http.Server{
		Handler: b, ReadHeaderTimeout: patience, IdleTimeout: patience, ReadTimeout: o.server, WriteTimeout: o.server,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		b.gates.open()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		require.NoError(t, b.executor.Close(ctx))
		b.Close()
		require.NoError(t, server.Shutdown(ctx))
		require.ErrorIs(t, <-served, http.ErrServerClosed)
		require.NoError(t, b.store.Close())
	})
	return b
}

// gates are the types that there are, and "gate": a task that waits until the
// gates are open.
type gates struct {
	*task.Registry

	began  chan task.Origin
	opened chan struct{}
	open   func()
}

func newGates() *gates {
	g := &gates{Registry: types.Builtin(types.Tools{}), began: make(chan task.Origin, 100), opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	return g
}

func (g *gates) Prepare(t task.Task) (task.Job, error) {
	if t.Type == "gate" {
		return g, nil
	}
	return g.Registry.Prepare(t)
}

func (g *gates) Target() string { return "" }

func (g *gates) Run(ctx context.Context, origin task.Origin) (task.Output, error) {
	g.began <- origin
	select {
	case <-g.opened:
		return task.Output{"passed": true}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fakeBatches starts batches that never end.
type fakeBatches struct {
	mu      sync.Mutex
	batches map[string]batch.Document
	inputs  []batch.Input
	// startErr is the error of Start; lost: it starts all the same.
	startErr error
	lost     bool
	readErr  error
	// cancels are who asked which batch to cancel, and why. With ended, it has ended
	// by the time of cancelErr.
	cancels   [][3]string
	cancelErr error
	ended     *batch.Document
}

func (f *fakeBatches) Start(_ context.Context, in batch.Input, name string) (control.Started, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := run.BatchID(in.Tenant, in.Project, name)
	if f.startErr != nil && !f.lost {
		return control.Started{}, f.startErr
	}
	if d, there := f.batches[id]; there {
		return control.Started{ID: id, RunID: d.RunID, Attached: true}, nil
	}
	f.inputs = append(f.inputs, in)
	f.batches[id] = in.Document(id, "run-1", time.Now())
	return control.Started{ID: id, RunID: "run-1"}, f.startErr
}

func (f *fakeBatches) Read(_ context.Context, id string) (*batch.Document, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, there := f.batches[id]
	switch {
	case f.readErr != nil:
		return nil, f.readErr
	case !there:
		return nil, &control.UnknownError{ID: id}
	}
	return &d, nil
}

func (f *fakeBatches) Cancel(_ context.Context, id, by, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancels = append(f.cancels, [3]string{id, by, reason})
	if f.cancelErr != nil && f.ended != nil {
		f.batches[id] = *f.ended
	}
	return f.cancelErr
}

// ends has a batch end.
func (f *fakeBatches) ends(id string, status run.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.batches[id]
	d.Status = status
	f.batches[id] = d
}

func (f *fakeBatches) started() []batch.Input {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.inputs)
}

type fakeAudit struct {
	mu      sync.Mutex
	entries []audit.Entry
}

func (f *fakeAudit) Write(_ context.Context, e audit.Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries = append(f.entries, e)
	return nil
}

// answer is what a request came to.
type answer struct {
	*http.Response

	text string
}

// decode reads the body of an answer.
func decode[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(a.text), &v), a.text)
	return v
}

// ask makes a request; headers are pairs.
func (b *testBundle) ask(t *testing.T, method, path string, body io.Reader, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, body)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Add(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Do(req)
	require.NoError(t, err)
	return readAnswer(t, resp)
}

func readAnswer(t *testing.T, resp *http.Response) answer {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return answer{resp, string(text)}
}

func (b *testBundle) task(t *testing.T, text string, headers ...string) answer {
	t.Helper()
	return b.ask(t, http.MethodPost, "/api/v1/tasks", strings.NewReader(text), append([]string{"Content-Type", "application/json"}, headers...)...)
}

func (b *testBundle) batch(t *testing.T, query string, body io.Reader, headers ...string) answer {
	t.Helper()
	return b.ask(t, http.MethodPost, "/api/v1/batches"+query, body, append([]string{"Content-Type", "application/x-ndjson"}, headers...)...)
}

// problem requires that an answer is a problem.
func problem(t *testing.T, a answer, status int, kind string) Problem {
	t.Helper()
	require.Equal(t, status, a.StatusCode, a.text)
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	p := decode[Problem](t, a)
	require.Equal(t, problemType+kind, p.Type)
	require.Equal(t, status, p.Status)
	require.Equal(t, http.StatusText(status), p.Title)
	require.NotEmpty(t, p.Detail)
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		require.Positive(t, p.RetryAfter)
		require.Equal(t, fmt.Sprint(p.RetryAfter), a.Header.Get("Retry-After"))
	}
	return p
}

// raw is a connection on which a client misbehaves.
func (b *testBundle) raw(t *testing.T, text string) *net.TCPConn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", b.address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	tcp, ok := conn.(*net.TCPConn)
	require.True(t, ok)
	return tcp
}

// send sends a task, whose answer is heard later.
func (b *testBundle) send(t *testing.T, text string) *net.TCPConn {
	t.Helper()
	return b.raw(t, fmt.Sprintf("POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
}

// heard is what the server answers on a connection.
func heard(t *testing.T, conn net.Conn) answer {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	return readAnswer(t, resp)
}

// stored are the keys in the store.
func (b *testBundle) stored(t *testing.T) []string {
	t.Helper()
	keys := map[string]bool{}
	for info, err := range b.store.List(t.Context(), "") {
		require.NoError(t, err)
		keys[info.Key] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

// lines is a batch of so many tasks.
func lines(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `{"id":"t%d","type":"noop"}`+"\n", i)
	}
	return text.String()
}

func eventually(t *testing.T, cond func() bool, what string) {
	t.Helper()
	require.Eventually(t, cond, patience, 5*time.Millisecond, what)
}
