package metrics_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/executor"
	"belay.run/internal/metrics"
	"belay.run/internal/task"
)

// anything prepares each task; those with a target are dead.
type anything struct{}

func (anything) Prepare(t task.Task) (task.Job, error) { return nowhere(t.With), nil }

type nowhere json.RawMessage

func (n nowhere) Target() string { return string(n) }

func (n nowhere) Run(context.Context, task.Origin) (task.Output, error) {
	if len(n) > 0 {
		return nil, task.Faultf("no route to host")
	}
	return task.Output{}, nil
}

// A hundred thousand runs, tenants and targets make no new series, and a scrape
// stays as long as it was.
func TestLightTasksOfManyRunsMakeNoSeries(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	e, err := executor.New(executor.Config{Registry: anything{}, Observer: m.Light(), Limits: executor.Limits{Breaker: executor.Breaker{Min: 1}}})
	require.NoError(t, err)
	m.WatchExecutor(e.Status)
	own := func() (int, int) {
		text := scrape(t, m)
		return len(regexp.MustCompile(`(?m)^belay_`).FindAllString(text, -1)), len(text)
	}
	before, bytes := own()
	const n = 100_000
	tasks := make([]task.Task, n)
	for i := range tasks {
		name := fmt.Sprint(i)
		tasks[i] = task.Task{
			ID: name, Type: []string{"http", "noop", name}[i%3],
			Origin: task.Origin{Tenant: name, Pipeline: name, Run: name, Node: name},
		}
		if i%10 == 0 {
			tasks[i].With = json.RawMessage("host-" + name + ":443")
		}
	}
	ended := 0
	for range e.SubmitBatch(t.Context(), tasks) {
		ended++
	}
	require.Equal(t, n, ended)
	after, more := own()
	require.Equal(t, before, after)
	require.Less(t, more, bytes+10_000)
	text := scrape(t, m)
	for _, line := range []string{
		`belay_light_tasks_total{outcome="succeeded",type="http"} 30000`,
		`belay_light_tasks_total{outcome="failed",type="http"} 3334`,
		`belay_light_tasks_total{outcome="failed",type="other"} 3333`,
		`belay_light_errors_total{trigger="dependency_unavailable",type="noop"} 3333`,
		`belay_light_batch_tasks_total 100000`,
		`belay_light_task_seconds_count{type="noop"} 33333`,
		`belay_light_queue_wait_seconds_count{type="http"} 33334`,
		`belay_light_breaker_trips_total 10000`,
		`belay_light_breakers{state="closed"} 0`,
		`belay_light_queue_length 0`,
		`belay_light_running 0`,
		`belay_light_concurrency_limit 1000`,
		`belay_light_rejected_total{reason="queue_full"} 0`,
		`belay_light_rate_limit_waits_total{scope="tenant"} 0`,
		`belay_light_dedup_hits_total{type="http"} 0`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, e.Close(ctx))
}

func TestCountsWhatLightTasksMeet(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	l := m.Light()
	l.Refused(executor.QueueFull)
	l.Refused("no such reason")
	l.Limited(executor.PerTenant)
	l.Stopped()
	l.Unclaimed()
	l.Loaded(true)
	l.Loaded(false)
	l.Ended(&task.Result{Type: "http", Status: task.Duplicate})
	l.Ended(&task.Result{Type: "http", Status: task.Failed, Error: task.Failf("unheard_of", "x")})
	l.Ended(&task.Result{Type: "noop", Status: task.Succeeded, Output: task.Output{task.FallbackOutput: true}})
	text := scrape(t, m)
	for _, line := range []string{
		`belay_light_fallbacks_total{type="noop"} 1`,
		`belay_light_fallbacks_total{type="http"} 0`,
		`belay_light_rejected_total{reason="queue_full"} 1`,
		`belay_light_rate_limit_waits_total{scope="tenant"} 1`,
		`belay_light_breaker_stopped_total 1`,
		`belay_light_unclaimed_total 1`,
		`belay_light_limits_loaded_total{result="set"} 1`,
		`belay_light_limits_loaded_total{result="refused"} 1`,
		`belay_light_dedup_hits_total{type="http"} 1`,
		`belay_light_errors_total{trigger="other",type="http"} 1`,
		`belay_light_task_seconds_count{type="http"} 1`,
	} {
		require.Contains(t, text, "\n"+line+"\n")
	}
}
