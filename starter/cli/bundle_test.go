package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/logs"
	"belay.run/internal/run"
	"belay.run/internal/store"
	"belay.run/starter/cli"
	"belay.run/starter/testkit/frontend"
	"belay.run/workflows"
)

// bundle is a command line over a frontend and a store of its own.
type bundle struct {
	server  *frontend.Server
	store   store.Store
	logs    *logs.Logs
	signals chan os.Signal
	opts    cli.Options
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{server: frontend.New(t), signals: make(chan os.Signal, 8)}
	st, err := store.Open(t.Context(), "file://"+t.TempDir(), nil)
	require.NoError(t, err)
	b.store, b.logs = st, logs.New(st, nil)
	t.Cleanup(func() {
		b.logs.Close()
		require.NoError(t, st.Close())
	})
	temporal := b.server.Dial(t)
	b.opts = cli.Options{
		Name: "belay", Signals: b.signals, In: strings.NewReader(""),
		Connect: func(context.Context) (*cli.Connection, error) {
			return &cli.Connection{
				Temporal: temporal, Namespace: frontend.Namespace, WebURL: "http://ui",
				Store: func(context.Context) (store.Store, error) { return st, nil },
				Logs:  func(context.Context) (*logs.Logs, error) { return b.logs, nil },
			}, nil
		},
	}
	return b
}

// result is what a command line left behind.
type result struct {
	code     int
	out, err string
}

// exec runs a command line to its end.
func (b *bundle) exec(t *testing.T, args ...string) result {
	t.Helper()
	var out, errOut output
	opts := b.opts
	opts.Out, opts.Err = &out, &errOut
	code := cli.Execute(t.Context(), opts, args)
	return result{code, out.String(), errOut.String()}
}

// started is a command line that goes on.
type started struct {
	out, err *output
	done     chan int
}

func (b *bundle) start(t *testing.T, args ...string) *started {
	t.Helper()
	s := &started{out: &output{}, err: &output{}, done: make(chan int, 1)}
	opts := b.opts
	opts.Out, opts.Err = s.out, s.err
	go func() { s.done <- cli.Execute(t.Context(), opts, args) }()
	return s
}

// ends waits for the exit code.
func (s *started) ends(t *testing.T) int {
	t.Helper()
	select {
	case code := <-s.done:
		return code
	case <-time.After(time.Minute):
		t.Fatalf("still running; standard output:\n%s\nstandard error:\n%s", s.out, s.err)
		return -1
	}
}

// says waits until an output holds a text.
func (o *output) says(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(o.String(), text) }, time.Minute, time.Millisecond,
		"never said %q", text)
}

// output is a buffer that may be read while it is written.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write takes output.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String is the output so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// hello is a file that is valid.
const hello = `version: 1
name: hello
inputs:
  who: {type: string, default: you}
stages:
  - name: greet
    env: {WHO: "${{ inputs.who }}"}
    steps:
      - {name: say, run: 'echo "hello $WHO"', retry: {max_attempts: 2}}
`

// file writes a file of a test.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// state is a run that a test changes while it goes on.
type state struct {
	mu  sync.Mutex
	doc run.Document
	w   *frontend.Workflow
}

// get is a copy, as a worker would send it.
func (s *state) get() (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(s.doc)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(text), nil
}

func (s *state) set(change func(d *run.Document)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.doc)
}

// onStart makes each started run one with the given document, and hands it out.
func (b *bundle) onStart(doc run.Document) <-chan *state {
	made := make(chan *state, 8)
	b.server.OnStart(func(w *frontend.Workflow) {
		s := &state{doc: doc, w: w}
		now := time.Now()
		s.doc.ID, s.doc.RunID, s.doc.RunKey, s.doc.StartedAt = w.ID, w.RunID, w.RunID, &now
		s.doc.Pipeline, s.doc.Status = "hello", run.Running
		w.Status = s.get
		made <- s
	})
	return made
}

// add puts a run there that was started before.
func (b *bundle) add(id string, doc run.Document) *state {
	now := time.Now()
	s := &state{doc: doc}
	s.doc.ID, s.doc.RunID, s.doc.StartedAt, s.doc.Pipeline = id, runKey, &now, "hello"
	if s.doc.Status == "" {
		s.doc.Status = run.Running
	}
	s.doc.RunKey = s.doc.RunID
	s.w = b.server.Add(&frontend.Workflow{
		ID: id, RunID: s.doc.RunID, Type: workflows.PipelineWorkflow, Started: now, Status: s.get,
		Input:      workflows.PipelineInput{},
		Attributes: map[string]string{"BelayPipeline": "hello", "BelayTenant": "default", "BelayProject": "default"},
	})
	return s
}

// end ends a run in a state.
func (b *bundle) end(s *state, status run.Status, cause *run.Cause) {
	now := time.Now()
	s.set(func(d *run.Document) { d.Status, d.Cause, d.EndedAt = status, cause, &now })
	doc, _ := s.get()
	switch status {
	case run.Cancelled:
		b.server.Cancel(s.w, doc)
	case run.Failed, run.TimedOut:
		b.server.Fail(s.w, failed(cause, doc))
	default:
		b.server.Complete(s.w, doc)
	}
}

// oneDocument reads the only JSON document of an output.
func oneDocument[T any](t *testing.T, text string) T {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	var doc T
	require.NoError(t, dec.Decode(&doc), "%s", text)
	require.False(t, dec.More(), "more than one document:\n%s", text)
	return doc
}
