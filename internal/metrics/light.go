package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"belay.run/internal/executor"
	"belay.run/internal/run"
	"belay.run/internal/task"
)

// other is the label of a type of task that is none of the known ones.
const other = "other"

// light are the metrics of light tasks, resolved once.
type light struct {
	types     map[string]*lightType
	refused   map[executor.Reason]prometheus.Counter
	limited   map[executor.Scope]prometheus.Counter
	loaded    map[bool]prometheus.Counter
	tripped   prometheus.Counter
	stopped   prometheus.Counter
	unclaimed prometheus.Counter
	batches   prometheus.Counter
	batched   prometheus.Counter
}

// lightType are those of one type of task.
type lightType struct {
	ended        map[task.Status]prometheus.Counter
	errors       map[run.Trigger]prometheus.Counter
	seconds      prometheus.Observer
	wait         prometheus.Observer
	deduplicated prometheus.Counter
	fellBack     prometheus.Counter
}

var _ executor.Observer = (*Light)(nil)

// Light hears what an executor of light tasks does.
type Light struct{ light *light }

// Light returns the observer of light tasks.
func (m *Metrics) Light() *Light { return &Light{&m.light} }

// lightTypes are the types of light tasks that have labels of their own.
func lightTypes() []string {
	return []string{"noop", "http", "health_check", "webhook_verify", "config_sync", "secret_check", "status_sync", other}
}

// lightTriggers are those that a light task may fail with.
func lightTriggers() []run.Trigger {
	return []run.Trigger{
		run.TriggerUser, run.TriggerStepTimeout, run.TriggerDependencyUnavailable, run.TriggerExitCode,
		run.TriggerProcessCrashed, run.TriggerLimitExceeded, run.TriggerMaintenance, run.TriggerInvalid, other,
	}
}

func (m *Metrics) newLight() light {
	counter := func(name, help string) prometheus.Counter { return m.counters(name, help).WithLabelValues() }
	l := light{
		types: map[string]*lightType{}, refused: map[executor.Reason]prometheus.Counter{},
		limited: map[executor.Scope]prometheus.Counter{}, loaded: map[bool]prometheus.Counter{},
		tripped:   counter("belay_light_breaker_trips_total", "Circuits of targets of light tasks that opened."),
		stopped:   counter("belay_light_breaker_stopped_total", "Light tasks that failed at once as the circuit of their target was open."),
		unclaimed: counter("belay_light_unclaimed_total", "Light tasks with a key that ran without a claim, as Redis was away."),
		batches:   counter("belay_light_batches_total", "Batches that were given to the executor: chunks, where they come from a durable batch."),
		batched:   counter("belay_light_batch_tasks_total", "Light tasks that were given to the executor in batches."),
	}
	m.newLightTypes(l.types)
	refused := m.counters("belay_light_rejected_total", "Light tasks that were not taken, by reason.", "reason")
	for _, r := range executor.Reasons() {
		l.refused[r] = refused.WithLabelValues(string(r))
	}
	limited := m.counters("belay_light_rate_limit_waits_total", "Times that light tasks began to wait since a bucket was empty, by whose it was.", "scope")
	for _, s := range executor.Scopes() {
		l.limited[s] = limited.WithLabelValues(string(s))
	}
	loaded := m.counters("belay_light_limits_loaded_total", "Limits of light tasks that were set, or refused as they were not valid.", "result")
	l.loaded[true], l.loaded[false] = loaded.WithLabelValues("set"), loaded.WithLabelValues("refused")
	return l
}

func (m *Metrics) newLightTypes(types map[string]*lightType) {
	ended := m.counters("belay_light_tasks_total", "Light tasks that ended, by type and outcome.", "type", "outcome")
	failed := m.counters("belay_light_errors_total", "Light tasks that failed or were skipped, by type and trigger.", "type", "trigger")
	duplicates := m.counters("belay_light_dedup_hits_total", "Light tasks that did not run, as one with their key had, by type.", "type")
	fallbacks := m.counters("belay_light_fallbacks_total", "Light tasks whose target was not well, in place of which the fallback of their type stood in, by type.", "type")
	buckets := prometheus.ExponentialBuckets(1e-3, 2.5, 11) // 1 ms to 9.5 s
	took := m.histograms("belay_light_task_seconds", "How long light tasks ran, by type.", buckets, "type")
	waited := m.histograms("belay_light_queue_wait_seconds", "How long light tasks waited before they ran, by type.", buckets, "type")
	for _, name := range lightTypes() {
		t := &lightType{
			ended: map[task.Status]prometheus.Counter{}, errors: map[run.Trigger]prometheus.Counter{},
			seconds: took.WithLabelValues(name), wait: waited.WithLabelValues(name), deduplicated: duplicates.WithLabelValues(name),
			fellBack: fallbacks.WithLabelValues(name),
		}
		for _, s := range []task.Status{task.Succeeded, task.Failed, task.Duplicate, task.Skipped} {
			t.ended[s] = ended.WithLabelValues(name, string(s))
		}
		for _, trigger := range lightTriggers() {
			t.errors[trigger] = failed.WithLabelValues(name, string(trigger))
		}
		types[name] = t
	}
}

// Ended counts a task.
func (l *Light) Ended(r *task.Result) {
	t := l.light.types[r.Type]
	if t == nil {
		t = l.light.types[other]
	}
	if c := t.ended[r.Status]; c != nil {
		c.Inc()
	}
	if r.Output.FellBack() {
		t.fellBack.Inc()
	}
	if r.Error != nil {
		c := t.errors[r.Error.Trigger]
		if c == nil {
			c = t.errors[other]
		}
		c.Inc()
	}
	t.wait.Observe(r.Waited.Seconds())
	switch r.Status {
	case task.Succeeded, task.Failed:
		t.seconds.Observe(r.Took.Seconds())
	case task.Duplicate:
		t.deduplicated.Inc()
	case task.Skipped:
	}
}

// Refused counts a task that was not taken.
func (l *Light) Refused(reason executor.Reason) {
	if c := l.light.refused[reason]; c != nil {
		c.Inc()
	}
}

// Limited counts a wait for a bucket.
func (l *Light) Limited(scope executor.Scope) {
	if c := l.light.limited[scope]; c != nil {
		c.Inc()
	}
}

// Tripped counts a circuit that opened.
func (l *Light) Tripped() { l.light.tripped.Inc() }

// Stopped counts a task that failed since its circuit was open.
func (l *Light) Stopped() { l.light.stopped.Inc() }

// Unclaimed counts a task that ran without its claim.
func (l *Light) Unclaimed() { l.light.unclaimed.Inc() }

// Batched counts a batch and its tasks.
func (l *Light) Batched(tasks int) {
	l.light.batches.Inc()
	l.light.batched.Add(float64(tasks))
}

// Loaded counts limits that were set or refused.
func (l *Light) Loaded(ok bool) { l.light.loaded[ok].Inc() }

// WatchExecutor asks at each scrape what an executor does. It is called at most
// once.
func (m *Metrics) WatchExecutor(status func() executor.Status) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.registry.MustRegister(&executors{
		status:      status,
		running:     desc("belay_light_running", "Light tasks that run."),
		goroutines:  desc("belay_light_goroutines", "Goroutines that run light tasks: one for each that runs, none for one that waits."),
		waiting:     desc("belay_light_queue_length", "Light tasks that wait."),
		queue:       desc("belay_light_queue_limit", "How many light tasks may wait that were not submitted in batches."),
		concurrency: desc("belay_light_concurrency", "How many light tasks may run now: fewer than the limit while the worker is short of CPU or files."),
		limit:       desc("belay_light_concurrency_limit", "How many light tasks may run by the limits."),
		delay:       desc("belay_light_scheduling_delay_seconds", "How long goroutines waited for a CPU in the last second, at the 99th percentile."),
		rate:        desc("belay_light_rate", "Light tasks that end in a second."),
		breakers:    desc("belay_light_breakers", "Targets of light tasks by the state of their circuit.", "state"),
	})
}

// executors collects what an executor does now, by one question.
type executors struct {
	status                                                                         func() executor.Status
	running, goroutines, waiting, queue, concurrency, limit, delay, rate, breakers *prometheus.Desc
}

// Describe is for Prometheus.
func (c *executors) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect is for Prometheus.
func (c *executors) Collect(to chan<- prometheus.Metric) {
	s := c.status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.running, float64(s.Running))
	gauge(c.goroutines, float64(s.Running))
	gauge(c.waiting, float64(s.Waiting))
	gauge(c.queue, float64(s.Queue))
	gauge(c.concurrency, float64(s.Concurrency))
	gauge(c.limit, float64(s.Limit))
	gauge(c.delay, s.Delay.Seconds())
	gauge(c.rate, s.Rate)
	gauge(c.breakers, float64(s.Breakers.Closed), "closed")
	gauge(c.breakers, float64(s.Breakers.HalfOpen), "half_open")
	gauge(c.breakers, float64(s.Breakers.Open), "open")
}
