// Package metrics counts what a worker does, for Prometheus. Every label has a
// fixed set of values, so that the number of series never grows with the number
// of tenants, pipelines or keys: those are in the audit.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"belay.run/internal/audit"
	"belay.run/internal/dedup"
)

// maxScrapes bounds the scrapes that are answered at one time.
const maxScrapes = 4

// Metrics are the metrics of one worker, in a registry of their own. They are
// safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	claims   claims
	audited  map[audit.Cause]prometheus.Counter
	lost     prometheus.Counter
	unknown  prometheus.Counter // claims that nobody could check
	swept    map[string]prometheus.Counter

	resources resources
	light     light
	nodes     nodes
	host      host
}

// claims are resolved once, so that counting one takes no look-up by labels.
type claims struct {
	decisions map[decision]prometheus.Counter
	seconds   map[bool]prometheus.Observer // by whether the local tier answered
	running   prometheus.Gauge
}

type decision struct {
	pipeline bool // else a step
	decision dedup.Decision
	local    bool
}

// failed is the decision of a claim that came to none.
const failed dedup.Decision = "error"

var _ dedup.Observer = (*Metrics)(nil)

// New returns metrics that are all zero.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.claims = m.newClaims()
	m.audited = make(map[audit.Cause]prometheus.Counter)
	entries := m.counters("belay_audit_entries_total", "Entries written to the audit, by root cause.", "root_cause")
	for _, cause := range append(audit.Causes(), "") {
		m.audited[cause] = entries.WithLabelValues(named(string(cause)))
	}
	m.lost = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "belay_audit_entries_dropped_total", Help: "Entries of the audit that could not be written.",
	})
	m.registry.MustRegister(m.lost)
	m.unknown = m.counters("belay_dedup_unchecked_total",
		"Runs and steps with a key at low risk that went on without a claim, as Redis was away.").WithLabelValues()
	m.swept = make(map[string]prometheus.Counter)
	swept := m.counters("belay_dedup_swept_total", "Claims of dead owners that the sweep ended, by the state it gave them.", "state")
	for _, state := range []dedup.State{dedup.Completed, dedup.Failed, dedup.Canceled} {
		m.swept[string(state)] = swept.WithLabelValues(string(state))
	}
	m.resources = m.newResources()
	m.light = m.newLight()
	m.nodes = m.newNodes()
	m.host = m.newHost()
	return m
}

func (m *Metrics) newClaims() claims {
	c := claims{
		decisions: make(map[decision]prometheus.Counter),
		seconds:   make(map[bool]prometheus.Observer),
		running:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "belay_dedup_claims_running", Help: "Claims that wait for their decision in this worker."}),
	}
	total := m.counters("belay_dedup_decisions_total",
		"Claims by the space of their key (pipeline or step), what they came to, and the tier that knew it.", "space", "decision", "tier")
	seconds := m.histograms("belay_dedup_claim_seconds", "How long claims took, by the tier that knew the answer.",
		prometheus.ExponentialBuckets(250e-9, 4, 14), "tier") // 250 ns to 17 s
	m.registry.MustRegister(c.running)
	for _, local := range []bool{false, true} {
		c.seconds[local] = seconds.WithLabelValues(tier(local))
		for _, pipeline := range []bool{false, true} {
			for _, d := range append(dedup.Decisions(), failed) {
				c.decisions[decision{pipeline, d, local}] = total.WithLabelValues(space(pipeline), string(d), tier(local))
			}
		}
	}
	return c
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(vec)
	return vec
}

func (m *Metrics) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(vec)
	return vec
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(vec)
	return vec
}

func space(pipeline bool) string {
	if pipeline {
		return "pipeline"
	}
	return "step"
}

func tier(local bool) string {
	if local {
		return audit.TierLocal
	}
	return audit.TierRedis
}

// named is a label that is never empty.
func named(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Claiming counts a claim that begins.
func (m *Metrics) Claiming() { m.claims.running.Inc() }

// Claimed counts a claim that is decided.
func (m *Metrics) Claimed(o *dedup.Observation) {
	m.claims.running.Dec()
	m.claims.seconds[o.Local].Observe(o.Took.Seconds())
	d := decision{o.Key.Pipeline != "", o.Decision, o.Local}
	if o.Err != nil {
		d.decision = failed
	}
	if c := m.claims.decisions[d]; c != nil {
		c.Inc()
	}
}

// WatchTier asks at each scrape whether the local tier answers. It is called at
// most once.
func (m *Metrics) WatchTier(up func() bool) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "belay_dedup_tier_up", Help: "1 while the local tier answers.",
	}, func() float64 { return truth(up()) }))
}

// Audited counts an entry of the audit; it is for audit.Options.
func (m *Metrics) Audited(e *audit.Entry, lost bool) {
	if e.Decision == audit.Unchecked {
		m.unknown.Inc()
	}
	if lost {
		m.lost.Inc()
		return
	}
	if c := m.audited[e.RootCause]; c != nil {
		c.Inc()
	}
}

// Swept counts a claim that the sweep ended.
func (m *Metrics) Swept(state dedup.State) {
	if c := m.swept[string(state)]; c != nil {
		c.Inc()
	}
}

// Handler answers scrapes. What goes wrong in one is logged.
func (m *Metrics) Handler(log *zap.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: zap.NewStdLog(log), ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes, Registry: m.registry,
	})
}
