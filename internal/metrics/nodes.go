package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"belay.run/internal/measure"
	"belay.run/internal/run"
)

// nodes are the metrics of runs, stages and steps.
type nodes struct {
	levels  map[string]*level
	retried prometheus.Counter
	waits   map[string]prometheus.Observer
}

// level are those of runs, or of stages, or of steps.
type level struct {
	total   map[ending]prometheus.Counter
	seconds map[run.Status]prometheus.Observer
	stop    prometheus.Observer
}

// ending is how a node ended.
type ending struct {
	status  run.Status
	trigger run.Trigger
}

const none run.Trigger = "none"

// endings are all that are told apart. What went well has no trigger.
func endings() []ending {
	all := []ending{{run.Succeeded, none}, {run.Duplicate, none}}
	triggers := append(run.Triggers(), none, other)
	for _, status := range []run.Status{run.Failed, run.TimedOut, run.Cancelled, run.Skipped} {
		for _, t := range triggers {
			all = append(all, ending{status, t})
		}
	}
	return all
}

// longBuckets go from 0.1 s to 6 h.
func longBuckets() []float64 {
	return []float64{.1, .5, 1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600}
}

func (m *Metrics) newNodes() nodes {
	n := nodes{levels: map[string]*level{}, waits: map[string]prometheus.Observer{}}
	stop := m.histograms("belay_stop_seconds",
		"How long runs, stages and steps took from the request of their cancel, or the end of their time, to their confirmed end.",
		[]float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900}, "level")
	for _, l := range []struct{ level, many string }{{measure.Run, "runs"}, {measure.Stage, "stages"}, {measure.Step, "steps"}} {
		total := m.counters("belay_"+l.many+"_total", "The "+l.many+" that ended, by outcome and by the trigger of their cause.", "outcome", "trigger")
		seconds := m.histograms("belay_"+l.level+"_seconds", "How long "+l.many+" took, by outcome.", longBuckets(), "outcome")
		of := &level{total: map[ending]prometheus.Counter{}, seconds: map[run.Status]prometheus.Observer{}, stop: stop.WithLabelValues(l.level)}
		for _, e := range endings() {
			of.total[e] = total.WithLabelValues(string(e.status), string(e.trigger))
			of.seconds[e.status] = seconds.WithLabelValues(string(e.status))
		}
		n.levels[l.level] = of
	}
	n.retried = m.counters("belay_step_retries_total", "Attempts of steps that ended, after the first of each.").WithLabelValues()
	waits := m.histograms("belay_queue_wait_seconds", "How long stages and steps waited before they went on, by what they waited for.",
		[]float64{.01, .05, .1, .5, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600}, "queue")
	for _, queue := range []string{measure.Group, measure.Host, measure.Process, measure.Lock, measure.Claim} {
		n.waits[queue] = waits.WithLabelValues(queue)
	}
	return n
}

func (n *nodes) ended(of string, status run.Status, trigger run.Trigger, took time.Duration) {
	l := n.levels[of]
	if l == nil || l.seconds[status] == nil {
		return
	}
	switch {
	case status.OK() || trigger == "":
		trigger = none
	case !trigger.Known():
		trigger = other
	}
	l.total[ending{status, trigger}].Inc()
	if status != run.Skipped {
		l.seconds[status].Observe(took.Seconds())
	}
}

func (n *nodes) stopped(of string, took time.Duration) {
	if l := n.levels[of]; l != nil {
		l.stop.Observe(took.Seconds())
	}
}

func (n *nodes) waited(queue string, took time.Duration) {
	if o := n.waits[queue]; o != nil {
		o.Observe(max(took, 0).Seconds())
	}
}

// Waited counts a wait of a stage or step that is over: for measure.Host and so on.
func (m *Metrics) Waited(queue string, took time.Duration) { m.nodes.waited(queue, took) }

// Stopped counts the end of a step that was told to end.
func (m *Metrics) Stopped(took time.Duration) { m.nodes.stopped(measure.Step, took) }
