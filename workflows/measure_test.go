package workflows_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"belay.run/activities"
	"belay.run/internal/metrics"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// measured runs a plan and returns what the worker's metrics have of it.
func measured(t *testing.T, p *spec.Plan, prepare func(*bench)) (*run.Document, func(line string)) {
	t.Helper()
	m := metrics.New()
	h, err := m.Temporal(zap.NewNop())
	require.NoError(t, err)
	b := setupMeasured(t, p, h)
	prepare(b)
	doc := b.run(t)
	rec := httptest.NewRecorder()
	m.Handler(zap.NewNop()).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	served := slices.Collect(strings.Lines(rec.Body.String()))
	return doc, func(line string) {
		t.Helper()
		name, _, _ := strings.Cut(line, "{")
		of := slices.DeleteFunc(slices.Clone(served), func(l string) bool { return !strings.HasPrefix(l, name) || strings.HasSuffix(l, " 0\n") })
		require.Contains(t, served, line+"\n", "there are %q", of)
	}
}

func TestRunsStagesAndStepsAreMeasured(t *testing.T) {
	t.Parallel()
	p := plan(
		stage("build", []spec.Step{step("compile", func(s *spec.Step) { s.Retry.MaxAttempts = 3 }), step("after")}),
		stage("deploy", []spec.Step{step("rollout")}, needs("build")),
	)
	p.Finally = []spec.Step{step("report")}
	doc, has := measured(t, p, func(b *bench) { b.world.steps["compile"] = exits(3, true) })
	require.Equal(t, run.Failed, doc.Status)
	has(`belay_runs_total{outcome="failed",trigger="exit_code"} 1`)
	has(`belay_run_seconds_count{outcome="failed"} 1`)
	has(`belay_stages_total{outcome="failed",trigger="exit_code"} 1`)
	has(`belay_stages_total{outcome="skipped",trigger="dependency_failed"} 1`)
	has(`belay_stages_total{outcome="succeeded",trigger="none"} 1`)
	has(`belay_stage_seconds_count{outcome="skipped"} 0`)
	has(`belay_steps_total{outcome="failed",trigger="exit_code"} 1`)
	has(`belay_steps_total{outcome="skipped",trigger="dependency_failed"} 1`)
	has(`belay_steps_total{outcome="succeeded",trigger="none"} 1`)
	has(`belay_step_seconds_count{outcome="failed"} 1`)
	has(`belay_step_retries_total 2`)
	has(`belay_stop_seconds_count{level="run"} 0`)
}

func TestStopsAreMeasuredFromTheRequest(t *testing.T) {
	t.Parallel()
	doc, has := measured(t, plan(stage("s", []spec.Step{step("a"), step("b")})), func(b *bench) {
		b.OnActivity("RunStep", anything, stepNamed("a")).After(time.Hour).Return(&activities.StepResult{}, nil)
		// Temporal has had the request for a minute before anybody took it up.
		b.world.cause.At = b.Now().Add(-time.Minute)
		b.RegisterDelayedCallback(b.CancelWorkflow, time.Second)
	})
	require.Equal(t, run.Cancelled, doc.Status)
	has(`belay_runs_total{outcome="cancelled",trigger="user"} 1`)
	has(`belay_stages_total{outcome="cancelled",trigger="user"} 1`)
	has(`belay_steps_total{outcome="cancelled",trigger="user"} 1`)
	has(`belay_steps_total{outcome="skipped",trigger="dependency_failed"} 1`)
	has(`belay_stop_seconds_count{level="stage"} 1`)
	has(`belay_stop_seconds_bucket{level="run",le="30"} 0`)
	has(`belay_stop_seconds_bucket{level="run",le="300"} 1`)
}

func TestWaitsForGroupsAreMeasured(t *testing.T) {
	t.Parallel()
	p := plan(stage("s", []spec.Step{step("a")}))
	p.Concurrency = grouped("g")
	doc, has := measured(t, p, func(b *bench) { slots(b, time.Minute, granted) })
	require.Equal(t, run.Succeeded, doc.Status)
	has(`belay_queue_wait_seconds_count{queue="group"} 1`)
	has(`belay_queue_wait_seconds_sum{queue="group"} 60`)
}
