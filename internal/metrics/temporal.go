package metrics

import (
	"fmt"
	"strings"
	"sync"
	"time"

	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.uber.org/zap"

	"belay.run/internal/measure"
	"belay.run/internal/run"
)

// maxTagValues is how many values a label of Temporal's SDK may have in one
// worker: more than there are types of workflows and activities. Whoever may
// start workflows names their types.
const maxTagValues = 100

// tagTaskQueue is the SDK's tag of a task queue.
const tagTaskQueue = "task_queue"

// Temporal returns what the client of Temporal's SDK is to tell its metrics: they
// are served as temporal_…, and what workflows measure as Belay's own. What goes
// wrong is logged. It is called at most once.
func (m *Metrics) Temporal(log *zap.Logger) (client.MetricsHandler, error) {
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(m.registry),
		otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("making the exporter of Temporal's metrics: %w", err)
	}
	// It stands for 0.5 ms to a minute, which is how long polls last.
	seconds := metric.NewView(metric.Instrument{Kind: metric.InstrumentKindHistogram}, metric.Stream{
		Aggregation: metric.AggregationExplicitBucketHistogram{
			Boundaries: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, NoMinMax: true,
		},
	})
	provider := metric.NewMeterProvider(metric.WithReader(exporter), metric.WithView(seconds))
	return &handler{
		sdk: opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{
			Meter: provider.Meter("temporal-sdk-go"), UseMonotonicCounters: true,
			OnError: func(err error) { log.Warn("could not count something of Temporal's SDK", zap.Error(err)) },
		}),
		nodes: &m.nodes, bound: &bound{seen: map[string]map[string]bool{}},
	}, nil
}

// handler hands on what the SDK measures, and keeps what workflows do.
type handler struct {
	sdk   client.MetricsHandler
	nodes *nodes
	bound *bound
}

// WithTags is for the SDK.
func (h *handler) WithTags(tags map[string]string) client.MetricsHandler {
	if tags[measure.Of] != "" {
		return measured{h.nodes, tags}
	}
	return &handler{h.sdk.WithTags(h.bound.tags(tags)), h.nodes, h.bound}
}

// Counter is for the SDK.
func (h *handler) Counter(name string) client.MetricsCounter { return h.sdk.Counter(name) }

// Gauge is for the SDK.
func (h *handler) Gauge(name string) client.MetricsGauge { return h.sdk.Gauge(name) }

// Timer is for the SDK.
func (h *handler) Timer(name string) client.MetricsTimer { return h.sdk.Timer(name) }

// bound keeps the values of tags few.
type bound struct {
	mu   sync.Mutex
	seen map[string]map[string]bool // by tag
}

func (b *bound) tags(tags map[string]string) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]string, len(tags))
	for tag, value := range tags {
		if tag == tagTaskQueue {
			value = run.QueueName(value)
		}
		seen := b.seen[tag]
		if seen == nil {
			seen = map[string]bool{}
			b.seen[tag] = seen
		}
		switch {
		case seen[value]:
		case len(seen) < maxTagValues:
			seen[strings.Clone(value)] = true
		default:
			value = other
		}
		out[tag] = value
	}
	return out
}

// measured takes what a workflow measures.
type measured struct {
	nodes *nodes
	tags  map[string]string
}

// WithTags is for the SDK, which adds none here.
func (m measured) WithTags(map[string]string) client.MetricsHandler { return m }

// Counter counts what is told.
func (m measured) Counter(name string) client.MetricsCounter {
	if name == measure.Retried {
		return counted(func(n int64) { m.nodes.retried.Add(float64(n)) })
	}
	return client.MetricsNopHandler.Counter(name)
}

// Gauge takes nothing: workflows have none.
func (measured) Gauge(name string) client.MetricsGauge { return client.MetricsNopHandler.Gauge(name) }

// Timer takes how long something took.
func (m measured) Timer(name string) client.MetricsTimer {
	of := m.tags[measure.Of]
	switch name {
	case measure.Ended:
		return timed(func(d time.Duration) {
			m.nodes.ended(of, run.Status(m.tags[measure.Outcome]), run.Trigger(m.tags[measure.Trigger]), d)
		})
	case measure.Stopped:
		return timed(func(d time.Duration) { m.nodes.stopped(of, d) })
	case measure.Waited:
		return timed(func(d time.Duration) { m.nodes.waited(of, d) })
	}
	return client.MetricsNopHandler.Timer(name)
}

type counted func(int64)

// Inc counts n more.
func (f counted) Inc(n int64) { f(n) }

type timed func(time.Duration)

// Record takes a duration.
func (f timed) Record(d time.Duration) { f(d) }
