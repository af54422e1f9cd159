package runs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"belay.run/internal/run"
	"belay.run/starter/runs"
	"belay.run/starter/testkit/frontend"
	"belay.run/workflows"
)

func TestReadMergesRunningStages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := &run.Document{Pipeline: "p", Stages: []run.Stage{{Name: "later", Node: "later", Status: run.Pending}}}
	b.pipeline("d/d/p/r/1", doc)
	b.stage(doc, "build", &run.Stage{Status: run.Cancelling, Host: "h1", Steps: []run.Step{step("build/a", run.Cancelling)}})
	doc.Stages[1].Status = run.Running // the pipeline has not heard of it

	snap, err := b.client.Reader(runs.Ref{ID: doc.ID, RunID: runID}).Read(t.Context())
	require.NoError(t, err)
	require.False(t, snap.Closed)
	require.Empty(t, snap.NoAnswer)
	build := snap.Document.Stages[1]
	require.Equal(t, run.Cancelling, build.Status, "the later state counts")
	require.Equal(t, "h1", build.Host)
	require.Len(t, build.Steps, 1)
	require.Equal(t, "http://ui:8233/namespaces/default/workflows/d%2Fd%2Fp%2Fr%2F1/"+runID, snap.Document.URL)
	require.NotNil(t, snap.Document.Inputs)
	require.NotNil(t, snap.Document.Stages[0].Steps)
	require.NotNil(t, build.Steps[0].Resources)
}

func TestReadClosedRunNeedsNoWorker(t *testing.T) {
	t.Parallel()
	failed := &run.Cause{Trigger: run.TriggerExitCode, Source: "bad/a", Message: "exited with 1"}
	for _, tc := range []struct {
		name   string
		status run.Status
		end    func(b *bundle, w *frontend.Workflow, doc any)
	}{
		{"Succeeded", run.Succeeded, func(b *bundle, w *frontend.Workflow, doc any) { b.server.Complete(w, doc) }},
		{"Failed", run.Failed, func(b *bundle, w *frontend.Workflow, doc any) {
			b.server.Fail(w, temporal.NewNonRetryableApplicationError("exit", "exit_code", nil, doc))
		}},
		{"TimedOut", run.TimedOut, func(b *bundle, w *frontend.Workflow, doc any) {
			b.server.Fail(w, temporal.NewNonRetryableApplicationError("time", "stage_timeout", nil, doc))
		}},
		{"Cancelled", run.Cancelled, func(b *bundle, w *frontend.Workflow, doc any) { b.server.Cancel(w, doc) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			doc := &run.Document{Pipeline: "p", Status: tc.status, Cause: failed, EndedAt: now()}
			w := b.pipeline("d/d/p/r/1", doc)
			full := &run.Stage{Status: tc.status, Cause: failed, Steps: []run.Step{step("bad/a", tc.status)}}
			child := b.stage(doc, "bad", full)
			tc.end(b, child, full)
			tc.end(b, w, doc)
			w.Status, child.Status = nil, nil

			r := b.client.Reader(runs.Ref{ID: doc.ID, RunID: runID})
			snap, err := r.Read(t.Context())
			require.NoError(t, err)
			require.True(t, snap.Closed)
			require.Equal(t, tc.status, snap.Document.Status)
			require.Equal(t, failed, snap.Document.Cause)
			require.Equal(t, "bad/a", snap.Document.Stages[0].Steps[0].Node)

			before := b.server.Asked().Queries
			again, err := r.Read(t.Context())
			require.NoError(t, err)
			require.Same(t, snap, again)
			require.Equal(t, before, b.server.Asked().Queries, "what ended is not asked again")
		})
	}
}

func TestReadTerminatedRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := &run.Document{Pipeline: "p"}
	w := b.pipeline("d/d/p/r/1", doc)
	ended := b.stage(doc, "ended", &run.Stage{Status: run.Cancelled, Steps: []run.Step{step("ended/a", run.Cancelled)}})
	killed := b.stage(doc, "killed", &run.Stage{Status: run.Running})
	w.Events = append(frontend.ChildEvents(5, ended), frontend.ChildEvents(7, killed)...)
	b.server.Cancel(ended, &run.Stage{Name: "ended", Node: "ended", Status: run.Cancelled, Steps: []run.Step{step("ended/a", run.Cancelled)}})
	b.server.Terminate(killed, "ann@desk", "stuck")
	b.server.Terminate(w, "ann@desk", "stuck")

	snap, err := b.client.Reader(runs.Ref{ID: doc.ID, RunID: runID}).Read(t.Context())
	require.NoError(t, err)
	require.True(t, snap.Closed)
	d := snap.Document
	require.Equal(t, run.Cancelled, d.Status)
	require.Equal(t, &run.Cause{Trigger: run.TriggerUser, By: "ann@desk", Message: "terminated: stuck"}, d.Cause)
	require.Equal(t, map[string]any{"tag": "v1"}, d.Inputs)
	require.Equal(t, "p", d.Pipeline)
	require.Len(t, d.Stages, 2)
	require.Equal(t, "ended", d.Stages[0].Node)
	require.Len(t, d.Stages[0].Steps, 1)
	require.Equal(t, run.Cancelled, d.Stages[1].Status)
	require.Equal(t, "terminated: stuck", d.Stages[1].Cause.Message)
	require.NotNil(t, d.EndedAt)
}

func TestReadRunThatLeftNoDocument(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.pipeline("d/d/p/r/1", &run.Document{})
	b.server.Fail(w, temporal.NewApplicationError("workflow task failed", "PanicError"))
	snap, err := b.client.Reader(runs.Ref{ID: w.ID, RunID: runID}).Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, run.Failed, snap.Document.Status)
	require.Contains(t, snap.Document.Cause.Message, "workflow task failed")

	b = setup(t)
	w = b.pipeline("d/d/p/r/1", &run.Document{})
	b.server.TimeOut(w)
	snap, err = b.client.Reader(runs.Ref{ID: w.ID, RunID: runID}).Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, run.TimedOut, snap.Document.Status)
}

func TestReadSaysThatNoWorkerAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := &run.Document{Pipeline: "p"}
	w := b.pipeline("d/d/p/r/1", doc)
	ended := b.stage(doc, "ended", &run.Stage{})
	b.server.Complete(ended, &run.Stage{Name: "ended", Node: "ended", Status: run.Succeeded, Steps: []run.Step{step("ended/a", run.Succeeded)}})
	running := b.stage(doc, "running", &run.Stage{})
	refuse := func() (any, error) {
		return nil, serviceerror.NewFailedPrecondition("no poller seen for task queue recently, worker may be down")
	}
	w.Status, running.Status = refuse, refuse
	w.Events = append(frontend.ChildEvents(5, ended), frontend.ChildEvents(7, running)...)

	snap, err := b.client.Reader(runs.Ref{ID: w.ID, RunID: runID}).Read(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, snap.NoAnswer)
	require.False(t, snap.Closed)
	require.Equal(t, run.Running, snap.Document.Status)
	require.Equal(t, run.Succeeded, snap.Document.Stages[0].Status)
	require.Len(t, snap.Document.Stages[0].Steps, 1)
	require.Equal(t, run.Running, snap.Document.Stages[1].Status)
}

func TestReadSurvivesAQuestionThatTheServerGivesUp(t *testing.T) {
	t.Parallel()
	for _, why := range []error{serviceerror.NewCanceled("context canceled"), context.Canceled} {
		b := setup(t)
		w := b.pipeline("d/d/p/r/1", &run.Document{})
		w.Status = func() (any, error) { return nil, why }
		snap, err := b.client.Reader(runs.Ref{ID: w.ID, RunID: runID}).Read(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, snap.NoAnswer)
	}
}

func TestReadTakesABoundedTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.pipeline("d/d/p/r/1", &run.Document{})
	w.Status = nil // never answers
	done := make(chan error, 1)
	go func() {
		snap, err := b.client.Reader(runs.Ref{ID: w.ID, RunID: runID}).Read(t.Context())
		if err == nil && snap.NoAnswer == "" {
			err = errors.New("somebody answered")
		}
		done <- err
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("still waiting for an answer")
	}
}

func TestReadUnknownRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.client.Reader(runs.Ref{ID: "nobody"}).Read(t.Context())
	var notFound *serviceerror.NotFound
	require.ErrorAs(t, err, &notFound)
}

func TestFollowShowsChangesUntilTheEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := &run.Document{Pipeline: "p"}
	w := b.pipeline("d/d/p/r/1", doc)
	var states []run.Status
	last, err := b.client.Follow(t.Context(), runs.Ref{ID: doc.ID, RunID: runID}, func(s *runs.Snapshot) error {
		states = append(states, s.Document.Status)
		if len(states) == 1 {
			b.server.Complete(w, &run.Document{ID: doc.ID, Pipeline: "p", Status: run.Succeeded})
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, run.Succeeded, last.Status)
	require.Equal(t, []run.Status{run.Running, run.Succeeded}, states)
}

func TestFollowEndsWithItsContextAndWithShow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pipeline("d/d/p/r/1", &run.Document{})
	stop := errors.New("enough")
	last, err := b.client.Follow(t.Context(), runs.Ref{ID: "d/d/p/r/1", RunID: runID}, func(*runs.Snapshot) error { return stop })
	require.ErrorIs(t, err, stop)
	require.Equal(t, run.Running, last.Status)
}

func TestResolve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(id, runID, typ string) {
		b.server.Add(&frontend.Workflow{ID: id, RunID: runID, Type: typ, ParentID: "d/d/p/r/one"})
	}
	const (
		old   = "aaaaaaaa-0000-4000-8000-000000000001"
		newer = "aaaaaaab-0000-4000-8000-000000000002"
		other = "bbbbbbbb-0000-4000-8000-000000000003"
		asked = "cccccccc-0000-4000-8000-000000000004"
	)
	add("d/d/p/r/one", old, workflows.PipelineWorkflow)
	add("d/d/p/r/one", newer, workflows.PipelineWorkflow)
	add("d/d/p/r/"+asked, other, workflows.PipelineWorkflow)
	add("stage", "dddddddd-0000-4000-8000-000000000005", workflows.StageWorkflow)
	for arg, want := range map[string]runs.Ref{
		"d/d/p/r/one":          {ID: "d/d/p/r/one", RunID: newer},
		"d/d/p/r/one@" + old:   {ID: "d/d/p/r/one", RunID: old},
		"bbbbbbbb":             {ID: "d/d/p/r/" + asked, RunID: other},
		"AAAAAAAB":             {ID: "d/d/p/r/one", RunID: newer},
		"cccccccc-0000":        {ID: "d/d/p/r/" + asked, RunID: other},
		"aaaaaaaa-0000-4000-8": {ID: "d/d/p/r/one", RunID: old},
	} {
		ref, err := b.client.Resolve(t.Context(), arg)
		require.NoError(t, err, arg)
		require.Equal(t, want, ref, arg)
	}
	for arg, message := range map[string]string{
		"nobody":                 `no run "nobody"`,
		"aaaaaa":                 "give at least 8 characters",
		"stage":                  "it is a stage of d/d/p/r/one",
		"d/d/p/r/one@" + other:   "no run",
		"":                       "is not a run",
		"tab\there":              "printable",
		"99999999":               `no run "99999999"`,
		"d/d/p/r/one@not-a-uuid": "no run",
	} {
		_, err := b.client.Resolve(t.Context(), arg)
		var unknown *runs.UnknownError
		require.ErrorAs(t, err, &unknown, arg)
		require.ErrorContains(t, err, message, arg)
	}
	add("d/d/p/r/two", "aaaaaaab-1111-4000-8000-000000000002", workflows.PipelineWorkflow)
	_, err := b.client.Resolve(t.Context(), "aaaaaaab")
	var unknown *runs.UnknownError
	require.ErrorAs(t, err, &unknown)
	require.Len(t, unknown.Candidates, 2)
	require.ErrorContains(t, err, "d/d/p/r/two@aaaaaaab-1111")
}

func TestList(t *testing.T) {
	t.Parallel()
	b := setup(t)
	began := time.Now()
	add := func(pipeline string, ago time.Duration, status run.Status) *frontend.Workflow {
		return b.server.Add(&frontend.Workflow{
			ID: "acme/web/" + pipeline + "/r/1", Type: workflows.PipelineWorkflow, Started: began.Add(-ago),
			Attributes: map[string]string{"BelayPipeline": pipeline, "BelayTenant": "acme", "BelayStatus": string(status)},
		})
	}
	b.server.Complete(add("a", 30*time.Hour, run.Succeeded), nil)
	b.server.Fail(add("b", time.Minute, run.TimedOut), errors.New("x"))
	add("a", 3*time.Hour, run.Cancelling)
	b.server.Terminate(add("c", 2*time.Minute, run.Running), "", "")
	b.server.Add(&frontend.Workflow{ID: "stage", Type: workflows.StageWorkflow})
	list := func(f runs.Filter) []string {
		if f.Limit == 0 {
			f.Limit = 20
		}
		docs, err := b.client.List(t.Context(), f)
		require.NoError(t, err)
		out := []string{}
		for _, d := range docs {
			out = append(out, d.Pipeline+" "+string(d.Status))
			require.Equal(t, "acme", d.Tenant)
			require.Equal(t, "web", d.Project)
		}
		return out
	}
	require.Equal(t, []string{"b timed_out", "c cancelled", "a cancelling", "a succeeded"}, list(runs.Filter{}))
	require.Equal(t, []string{"b timed_out", "c cancelled"}, list(runs.Filter{Limit: 2}))
	require.Equal(t, []string{"a cancelling", "a succeeded"}, list(runs.Filter{Pipeline: "a"}))
	require.Equal(t, []string{"a cancelling"}, list(runs.Filter{Status: run.Cancelling}))
	require.Equal(t, []string{"b timed_out"}, list(runs.Filter{Status: run.TimedOut}))
	require.Empty(t, list(runs.Filter{Status: run.Failed}))
	require.Equal(t, []string{"b timed_out", "c cancelled", "a cancelling"}, list(runs.Filter{Since: began.Add(-4 * time.Hour)}))
	require.Empty(t, list(runs.Filter{Tenant: "it's"}))
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := &run.Document{Pipeline: "p", Stages: []run.Stage{{Name: "later", Node: "later", Status: run.Pending}}}
	b.pipeline("d/d/p/r/1", doc)
	build := b.stage(doc, "build", &run.Stage{Status: run.Running, Steps: []run.Step{step("build/a", run.Running), step("build/b", run.Succeeded)}})
	ref := runs.Ref{ID: doc.ID, RunID: runID}
	by := runs.Asker{Identity: "ann@desk", Reason: "wrong tag"}
	snap, err := b.client.Reader(ref).Read(t.Context())
	require.NoError(t, err)

	require.NoError(t, b.client.CancelNow(t.Context(), ref, by))
	asked := b.server.Asked()
	require.Len(t, asked.Signals, 1)
	require.Equal(t, workflows.NowSignal, asked.Signals[0].GetSignalName())
	require.Equal(t, "ann@desk", asked.Cancels[0].GetIdentity())
	require.Equal(t, "wrong tag", asked.Cancels[0].GetReason())
	require.Equal(t, runID, asked.Cancels[0].GetWorkflowExecution().GetRunId())

	require.NoError(t, b.client.CancelNode(t.Context(), snap.Document, "build", by))
	require.Equal(t, build.RunID, b.server.Asked().Cancels[1].GetWorkflowExecution().GetRunId())

	require.NoError(t, b.client.CancelNode(t.Context(), snap.Document, "build/a", by))
	update := b.server.Asked().Updates[0]
	require.Equal(t, workflows.CancelNodeUpdate, update.GetRequest().GetInput().GetName())
	require.JSONEq(t, `{"node":"build/a","reason":"wrong tag","by":"ann@desk"}`,
		string(update.GetRequest().GetInput().GetArgs().GetPayloads()[0].GetData()))

	for node, message := range map[string]string{
		"later":   "it has not started",
		"later/x": "its stage has not started",
		"build/b": "it has already ended: succeeded",
		"build/x": "the stage has no such step",
		"nothing": "the run has no such node",
	} {
		err := b.client.CancelNode(t.Context(), snap.Document, node, by)
		var nodeErr *runs.NodeError
		require.ErrorAs(t, err, &nodeErr, node)
		require.ErrorContains(t, err, message)
	}
	build.Update = func([]byte) error { return errors.New("step build/a has already ended") }
	require.ErrorContains(t, b.client.CancelNode(t.Context(), snap.Document, "build/a", by), "has already ended")
}
