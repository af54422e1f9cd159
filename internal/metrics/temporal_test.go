package metrics_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"belay.run/internal/measure"
	"belay.run/internal/metrics"
	"belay.run/internal/run"
)

func temporal(t testing.TB, m *metrics.Metrics) client.MetricsHandler {
	t.Helper()
	h, err := m.Temporal(zap.NewNop())
	require.NoError(t, err)
	return h
}

// ends tells of a node as its workflow does.
func ends(h client.MetricsHandler, of string, status run.Status, trigger run.Trigger, took time.Duration) {
	// The SDK has put its own tags before.
	h = h.WithTags(map[string]string{"namespace": "default", "workflow_type": "Stage"})
	h.WithTags(map[string]string{
		measure.Of: of, measure.Outcome: string(status), measure.Trigger: string(trigger),
	}).Timer(measure.Ended).Record(took)
}

func TestServesWhatTemporalsSDKMeasures(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	h := temporal(t, m).WithTags(map[string]string{"namespace": "default"})
	tagged := h.WithTags(map[string]string{"task_queue": run.HostQueue("h1", "boot")})
	tagged.Counter("temporal_activity_poll_no_task").Inc(3)
	tagged.Gauge("temporal_num_pollers").Update(2)
	h.WithTags(map[string]string{"operation": "StartWorkflowExecution"}).Timer("temporal_request_latency").Record(20 * time.Millisecond)
	text := scrape(t, m)
	for _, line := range []string{
		`temporal_activity_poll_no_task_total{namespace="default",task_queue="belay-host"} 3`,
		`temporal_num_pollers{namespace="default",task_queue="belay-host"} 2`,
		`temporal_request_latency_seconds_bucket{namespace="default",operation="StartWorkflowExecution",le="0.01"} 0`,
		`temporal_request_latency_seconds_bucket{namespace="default",operation="StartWorkflowExecution",le="0.025"} 1`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	require.NotContains(t, text, "otel_scope")
	require.NotContains(t, text, "target_info")
}

func TestCountsWhatWorkflowsMeasure(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	h := temporal(t, m)
	ends(h, measure.Run, run.Succeeded, "", 3*time.Second)
	ends(h, measure.Run, run.Duplicate, run.TriggerUser, time.Second)
	ends(h, measure.Stage, run.Failed, run.TriggerExitCode, 3*time.Second)
	ends(h, measure.Step, run.Skipped, run.TriggerDependencyFailed, 0)
	ends(h, measure.Step, run.Failed, "unheard_of", time.Millisecond)
	ends(h, measure.Step, "unheard_of", "", time.Millisecond)
	ends(h, "unheard_of", run.Failed, "", time.Millisecond)
	of := func(what string) client.MetricsHandler { return h.WithTags(map[string]string{measure.Of: what}) }
	of(measure.Step).Counter(measure.Retried).Inc(2)
	of(measure.Run).Timer(measure.Stopped).Record(300 * time.Millisecond)
	of(measure.Group).Timer(measure.Waited).Record(time.Minute)
	of("unheard_of").Timer(measure.Waited).Record(time.Minute)
	of(measure.Run).Timer("unheard_of").Record(time.Minute)
	of(measure.Run).Counter("unheard_of").Inc(1)
	of(measure.Run).Gauge("unheard_of").Update(1)
	m.Waited(measure.Host, -time.Second) // two clocks
	m.Stopped(time.Second)
	text := scrape(t, m)
	for _, line := range []string{
		`belay_runs_total{outcome="succeeded",trigger="none"} 1`,
		`belay_runs_total{outcome="duplicate",trigger="none"} 1`,
		`belay_run_seconds_bucket{outcome="succeeded",le="1"} 0`,
		`belay_run_seconds_bucket{outcome="succeeded",le="5"} 1`,
		`belay_stages_total{outcome="failed",trigger="exit_code"} 1`,
		`belay_steps_total{outcome="skipped",trigger="dependency_failed"} 1`,
		`belay_step_seconds_count{outcome="skipped"} 0`,
		`belay_steps_total{outcome="failed",trigger="other"} 1`,
		`belay_step_seconds_count{outcome="failed"} 1`,
		`belay_step_retries_total 2`,
		`belay_stop_seconds_count{level="run"} 1`,
		`belay_stop_seconds_count{level="step"} 1`,
		`belay_queue_wait_seconds_sum{queue="group"} 60`,
		`belay_queue_wait_seconds_sum{queue="host"} 0`,
		`belay_queue_wait_seconds_count{queue="host"} 1`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	require.NotContains(t, text, "unheard_of")
	require.NotContains(t, text, "belay_of")
}

func TestCountsWhatTheHostDoes(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	h := metrics.Host{Ready: true, Stages: 3, MaxStages: 32, MaxProcesses: 4, Answering: []string{"Temporal"}, Silent: []string{"Redis"}}
	m.WatchHost(func() metrics.Host { return h })
	m.Running(1)
	m.Running(1)
	m.Running(-1)
	m.Logged(100, 7)
	m.LeaseLost("lock")
	m.LeaseLost("unheard_of")
	m.SetDisk("state", 10, 20)
	m.SetDisk("unheard_of", 10, 20)
	m.SetHeld(map[string]int{"port": 2, "unheard_of": 1})
	m.ReleaseFailed("custom")
	m.ReleaseFailed("unheard_of")
	text := scrape(t, m)
	for _, line := range []string{
		`belay_ready 1`,
		`belay_stages_bound 3`,
		`belay_stages_limit 32`,
		`belay_processes_limit 4`,
		`belay_processes_running 1`,
		`belay_service_up{service="redis"} 0`,
		`belay_service_up{service="temporal"} 1`,
		`belay_log_bytes_total 100`,
		`belay_log_dropped_bytes_total 7`,
		`belay_leases_lost_total{kind="claim"} 0`,
		`belay_leases_lost_total{kind="lock"} 1`,
		`belay_disk_free_bytes{of="state"} 10`,
		`belay_disk_size_bytes{of="state"} 20`,
		`belay_resources_held{kind="port"} 2`,
		`belay_resources_held{kind="lock"} 0`,
		`belay_release_failures_total{kind="custom"} 1`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	require.NotContains(t, text, "unheard_of")
	m.SetHeld(nil)
	require.Contains(t, scrape(t, m), "\nbelay_resources_held{kind=\"port\"} 0\n")
}

// all are the series of a scrape.
func all(text string) []string { return regexp.MustCompile(`(?m)^[a-z][^ ]*`).FindAllString(text, -1) }

// tellOfRun tells of a run, its stage and its step, in which everything that
// others name is new.
func tellOfRun(m *metrics.Metrics, h client.MetricsHandler, i int) {
	name := fmt.Sprint("run ", i)
	sdk := h.WithTags(map[string]string{"namespace": name, "workflow_type": name, "activity_type": name, "task_queue": run.HostQueue(name, name)})
	sdk.Counter("temporal_workflow_completed").Inc(1)
	sdk.Timer("temporal_activity_execution_latency").Record(time.Second)
	statuses, triggers := run.Statuses(), append(run.Triggers(), run.Trigger(name), "")
	for _, of := range []string{measure.Run, measure.Stage, measure.Step} {
		ends(h, of, statuses[i%len(statuses)], triggers[i%len(triggers)], time.Duration(i)*time.Millisecond)
	}
	m.Waited(measure.Process, time.Duration(i)*time.Microsecond)
	m.Logged(int64(i), 0)
	m.Released(name)
}

// The series after 100,000 runs are those after the first few hundred, which have
// filled what is bounded.
func TestManyRunsMakeNoSeries(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	h := temporal(t, m)
	const few, many = 300, 100_000
	for i := range few {
		tellOfRun(m, h, i)
	}
	before := all(scrape(t, m))
	for i := few; i < many; i++ {
		tellOfRun(m, h, i)
	}
	require.Equal(t, before, all(scrape(t, m)))
	require.Less(t, len(before), 5000)
}

// BenchmarkScrape is a scrape of a worker that has seen 100,000 runs.
func BenchmarkScrape(b *testing.B) {
	m := metrics.New()
	h := temporal(b, m)
	for i := range 100_000 {
		tellOfRun(m, h, i)
	}
	for b.Loop() {
		scrape(b, m)
	}
}

// BenchmarkEnded is what a workflow measures at its end.
func BenchmarkEnded(b *testing.B) {
	h := temporal(b, metrics.New())
	for b.Loop() {
		ends(h, measure.Step, run.Failed, run.TriggerExitCode, time.Second)
	}
}
