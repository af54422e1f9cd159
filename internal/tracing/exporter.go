package tracing

import (
	"context"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exporter sends spans and tells of the first that could not be sent: a collector
// that is away is away for each batch, and nothing that Belay does waits for it.
type exporter struct {
	to   sdktrace.SpanExporter
	tell func(error)
	// over is closed when what is under way is to be given up.
	over   chan struct{}
	giveUp func()
}

var _ sdktrace.SpanExporter = (*exporter)(nil)

func newExporter(to sdktrace.SpanExporter, warn func(error)) *exporter {
	e := &exporter{to: to, over: make(chan struct{})}
	e.giveUp = sync.OnceFunc(func() { close(e.over) })
	var once sync.Once
	e.tell = func(err error) {
		if warn != nil {
			once.Do(func() { warn(err) })
		}
	}
	return e
}

// ExportSpans sends spans. It never fails: the SDK would write of it to standard
// error, each time.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-e.over:
			cancel(context.Canceled)
		case <-done:
		}
	}()
	if err := e.to.ExportSpans(ctx, spans); err != nil {
		e.tell(err)
	}
	return nil
}

// Shutdown ends the connection to the collector.
func (e *exporter) Shutdown(ctx context.Context) error { return e.to.Shutdown(ctx) }
