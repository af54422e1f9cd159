package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"belay.run/internal/resource"
	"belay.run/internal/retention"
)

// resources are the metrics of what runs acquire and give back.
type resources struct {
	leaked   prometheus.Gauge
	released map[string]prometheus.Counter
	failed   map[string]prometheus.Counter
	held     map[string]prometheus.Gauge
	overdue  prometheus.Counter
	expired  map[retention.Kind]prometheus.Counter
}

func (m *Metrics) newResources() resources {
	r := resources{
		leaked: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "belay_leaked_resources", Help: "Resources that could not be released, of all runs: every worker tells the same number.",
		}),
		released: make(map[string]prometheus.Counter),
		failed:   make(map[string]prometheus.Counter),
		held:     make(map[string]prometheus.Gauge),
		overdue: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "belay_overdue_runs_total", Help: "Runs that this worker found going on long after their timeout and all that may follow it.",
		}),
	}
	m.registry.MustRegister(r.leaked, r.overdue)
	total := m.counters("belay_released_total", "Resources that were released by this worker, by kind.", "kind")
	tries := m.counters("belay_release_failures_total", "Tries of this worker to release a resource that failed, by kind: each is tried again.", "kind")
	held := m.gauges("belay_resources_held", "Resources on this host that are not released, by kind, counted every 15 seconds.", "kind")
	for _, kind := range []string{
		resource.KindProcess, resource.KindContainer, resource.KindTempDir, resource.KindWorkspace, resource.KindPort,
		resource.KindLock, resource.KindSlot, resource.KindCredential, resource.KindCustom,
	} {
		r.released[kind], r.failed[kind], r.held[kind] = total.WithLabelValues(kind), tries.WithLabelValues(kind), held.WithLabelValues(kind)
	}
	r.expired = make(map[retention.Kind]prometheus.Counter)
	expired := m.counters("belay_retention_removed_total",
		"What this worker removed since it was kept for long enough: logs of runs, archives, batches, entries of the audit.", "kind")
	for _, kind := range retention.Kinds() {
		r.expired[kind] = expired.WithLabelValues(string(kind))
	}
	return r
}

// SetHeld says what this host holds, by kind.
func (m *Metrics) SetHeld(held map[string]int) {
	for kind, g := range m.resources.held {
		g.Set(float64(held[kind]))
	}
}

// ReleaseFailed counts a try to release a resource that failed.
func (m *Metrics) ReleaseFailed(kind string) {
	if c := m.resources.failed[kind]; c != nil {
		c.Inc()
	}
}

// Expired counts what was removed since it was kept for long enough.
func (m *Metrics) Expired(kind retention.Kind, n int) {
	if c := m.resources.expired[kind]; c != nil {
		c.Add(float64(n))
	}
}

// SetLeaked says how many resources are leaked.
func (m *Metrics) SetLeaked(n int) { m.resources.leaked.Set(float64(n)) }

// Overdue counts a run that was found to go on long after it should have ended.
func (m *Metrics) Overdue() { m.resources.overdue.Inc() }

// Released counts a resource that this worker released.
func (m *Metrics) Released(kind string) {
	if c := m.resources.released[kind]; c != nil {
		c.Inc()
	}
}
