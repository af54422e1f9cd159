package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"belay.run/internal/logs"
	"belay.run/internal/run"
	"belay.run/starter/runs"
	"belay.run/workflows"
)

// Patience is how long tests wait for what should happen soon. It only bounds
// what is broken, so it is generous.
const Patience = 5 * time.Minute

// pollEvery is how often a condition is looked at.
const pollEvery = 50 * time.Millisecond

// Run is a run that a test started.
type Run struct {
	runs.Ref

	t      *testing.T
	env    *Env
	reader *runs.Reader
}

// Run starts the pipeline with the given text. A run that has not ended when
// the test does is cancelled.
func (e *Env) Run(t *testing.T, file string, with ...func(*workflows.PipelineInput)) *Run {
	t.Helper()
	in := workflows.PipelineInput{
		File: file, Path: t.Name() + ".yaml", Tenant: run.DefaultTenant, Project: run.DefaultProject,
		RequestID: uuid.NewString(), RequestedAt: time.Now().UTC(), Sender: "test@e2e",
	}
	for _, f := range with {
		f(&in)
	}
	started, err := e.Temporal.Client().ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID:                  run.ID(in.Tenant, in.Project, "e2e", in.RequestID),
		TaskQueue:           run.QueueWorkflows,
		WorkflowTaskTimeout: workflows.TaskTimeout(0),
	}, workflows.PipelineWorkflow, in)
	require.NoError(t, err, "starting the run")
	return e.Follow(t, runs.Ref{ID: started.GetID(), RunID: started.GetRunID()})
}

// Inputs gives the run its inputs.
func Inputs(values map[string]string) func(*workflows.PipelineInput) {
	return func(in *workflows.PipelineInput) { in.Inputs = values }
}

// Follow takes up a run that was started in some other way.
func (e *Env) Follow(t *testing.T, ref runs.Ref) *Run {
	t.Helper()
	r := &Run{Ref: ref, t: t, env: e, reader: e.Runs.Reader(ref)}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		// Almost always it has ended, or its server has.
		_ = e.Temporal.Client().CancelWorkflow(ctx, ref.ID, ref.RunID)
	})
	return r
}

// Document tells how the run stands now.
func (r *Run) Document() *run.Document {
	r.t.Helper()
	snap, err := r.reader.Read(r.t.Context())
	require.NoError(r.t, err, "reading run %s", r.Ref)
	return snap.Document
}

// WaitFor waits until the run is as the condition wants it, which what says in
// words, and returns its document.
func (r *Run) WaitFor(what string, condition func(*run.Document) bool) *run.Document {
	r.t.Helper()
	return r.waitFor(Patience, what, condition)
}

func (r *Run) waitFor(within time.Duration, what string, condition func(*run.Document) bool) *run.Document {
	r.t.Helper()
	var doc *run.Document
	var lastErr error
	met := poll(r.t.Context(), within, func(ctx context.Context) bool {
		snap, err := r.reader.Read(ctx)
		if lastErr = err; err != nil {
			return false // a worker that is gone, say: it may come back
		}
		doc = snap.Document
		return condition(doc)
	})
	if !met {
		r.t.Fatalf("within %s not: %s\nlast error: %v\nlast seen: %s", within, what, lastErr, text(doc))
	}
	return doc
}

// Wait waits until the run has ended.
func (r *Run) Wait() *run.Document {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), Patience)
	defer cancel()
	// Asking again and again how a large run stands would slow it down. How it
	// ended is read below, whatever this says.
	_ = r.env.Temporal.Client().GetWorkflow(ctx, r.ID, r.RunID).Get(ctx, nil)
	return r.WaitFor("the run has ended", func(d *run.Document) bool { return d.Status.Terminal() })
}

// WaitNode waits until a node, "" for the run itself, has a state.
func (r *Run) WaitNode(node string, want run.Status) *run.Document {
	r.t.Helper()
	return r.WaitFor(fmt.Sprintf("%q is %s", node, want), func(d *run.Document) bool {
		got, ok := Nodes(d)[node]
		return ok && got.Status == want
	})
}

// WaitLog waits until a node's log holds a text: a script says by a line that
// it has come to some point.
func (r *Run) WaitLog(node, want string) {
	r.t.Helper()
	var last string
	met := poll(r.t.Context(), Patience, func(ctx context.Context) bool {
		got, err := r.log(ctx, node)
		last = got
		return err == nil && strings.Contains(got, want)
	})
	if !met {
		r.t.Fatalf("within %s the log of %s has no %q; it is %q", Patience, node, want, last)
	}
}

// Log is what a node printed, over all its attempts.
func (r *Run) Log(node string) string {
	r.t.Helper()
	got, err := r.log(r.t.Context(), node)
	require.NoError(r.t, err, "reading the log of %s", node)
	return got
}

func (r *Run) log(ctx context.Context, node string) (string, error) {
	snap, err := r.reader.Read(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = r.env.Logs.Replay(ctx, snap.Document.RunKey, logs.Filter{Node: node}, func(rec logs.Record) error {
		b.Write(rec.Data)
		return nil
	})
	return b.String(), err
}

// Cancel asks the run to cancel.
func (r *Run) Cancel(reason string) {
	r.t.Helper()
	require.NoError(r.t, r.env.Runs.Cancel(r.t.Context(), r.Ref, runs.Asker{Identity: "test@e2e", Reason: reason}))
}

// poll looks at a condition until it is met or the time is over.
func poll(ctx context.Context, within time.Duration, met func(context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if met(ctx) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

func text(d *run.Document) string {
	out, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(out)
}
