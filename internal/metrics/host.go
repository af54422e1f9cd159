package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"belay.run/internal/resource"
	"belay.run/internal/version"
)

// host are the metrics of the host of a worker, and of what its steps print and
// hold leases of.
type host struct {
	processes prometheus.Gauge
	printed   prometheus.Counter
	dropped   prometheus.Counter
	lost      map[string]prometheus.Counter
	free      *prometheus.GaugeVec
	size      *prometheus.GaugeVec
}

// Host is what the host of a worker does now.
type Host struct {
	// Ready: it takes stages.
	Ready bool
	// Stages are bound to it, of at most MaxStages; it runs the processes of at
	// most MaxProcesses steps.
	Stages, MaxStages, MaxProcesses int
	// Answering and Silent are the services that it needs, by whether they answer.
	Answering, Silent []string
}

// leaseKinds are the kinds of leases: claims of steps, and locks.
func leaseKinds() []string { return []string{"claim", resource.KindLock} }

// diskUses are what a worker keeps on disk.
func diskUses() []string { return []string{"state", "store"} }

func (m *Metrics) newHost() host {
	h := host{lost: map[string]prometheus.Counter{}}
	h.processes = m.gauges("belay_processes_running", "Steps that run a process on this host.").WithLabelValues()
	h.printed = m.counters("belay_log_bytes_total", "Bytes that attempts of steps printed that have ended.").WithLabelValues()
	h.dropped = m.counters("belay_log_dropped_bytes_total", "Bytes of these that are in no log: over the limit, or not taken by the store.").WithLabelValues()
	lost := m.counters("belay_leases_lost_total", "Leases that became another's while they were held, by kind.", "kind")
	for _, kind := range leaseKinds() {
		h.lost[kind] = lost.WithLabelValues(kind)
	}
	h.free = m.gauges("belay_disk_free_bytes", "What is free on the disk of the state directory or of a store in a folder.", "of")
	h.size = m.gauges("belay_disk_size_bytes", "How large that disk is.", "of")
	build := m.gauges("belay_build_info", "1, with the version of the worker.", "version")
	build.WithLabelValues(version.String()).Set(1)
	return h
}

// Running counts steps that begin to run processes, or, negative, that end.
func (m *Metrics) Running(n int) { m.host.processes.Add(float64(n)) }

// Logged counts what an attempt printed, and how much of it is lost.
func (m *Metrics) Logged(printed, dropped int64) {
	m.host.printed.Add(float64(printed))
	m.host.dropped.Add(float64(dropped))
}

// LeaseLost counts a lease that became another's.
func (m *Metrics) LeaseLost(kind string) {
	if c := m.host.lost[kind]; c != nil {
		c.Inc()
	}
}

// SetDisk says how much of a disk is free.
func (m *Metrics) SetDisk(of string, free, size uint64) {
	if slices.Contains(diskUses(), of) {
		m.host.free.WithLabelValues(of).Set(float64(free))
		m.host.size.WithLabelValues(of).Set(float64(size))
	}
}

// WatchHost asks at each scrape what the host does. It is called at most once.
func (m *Metrics) WatchHost(status func() Host) {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m.registry.MustRegister(&hosts{
		status:       status,
		ready:        desc("belay_ready", "1 while the worker takes stages."),
		stages:       desc("belay_stages_bound", "Stages that this host has taken."),
		maxStages:    desc("belay_stages_limit", "How many stages this host takes at a time."),
		maxProcesses: desc("belay_processes_limit", "How many steps may run a process on this host at a time."),
		up:           desc("belay_service_up", "1 while a service that the worker needs answers, looked at every 10 seconds.", "service"),
	})
}

// hosts collects what a host does now, by one question.
type hosts struct {
	status                                     func() Host
	ready, stages, maxStages, maxProcesses, up *prometheus.Desc
}

// Describe is for Prometheus.
func (c *hosts) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, to) }

// Collect is for Prometheus.
func (c *hosts) Collect(to chan<- prometheus.Metric) {
	s := c.status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.ready, truth(s.Ready))
	gauge(c.stages, float64(s.Stages))
	gauge(c.maxStages, float64(s.MaxStages))
	gauge(c.maxProcesses, float64(s.MaxProcesses))
	for _, service := range s.Answering {
		gauge(c.up, 1, strings.ToLower(service))
	}
	for _, service := range s.Silent {
		gauge(c.up, 0, strings.ToLower(service))
	}
}

// truth is 1 for true.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
