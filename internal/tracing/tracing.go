// Package tracing joins all that is done for one run into one trace: the command
// that starts it, its workflow, its stages, its steps and what they ask of others.
// Where spans are sent to, if anywhere, is said by the standard variables OTEL_…
// alone. Without them nothing is recorded, and a trace that somebody else began is
// handed on.
//
// It does without the interceptor of Temporal's SDK, which ends the span of a
// workflow whenever a worker drops that from its cache, and knows nothing of
// tenants, nodes and what became of them.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"belay.run/internal/version"
)

// Library is the name of the instrumentation scope.
const Library = "belay.run"

// Tracing records spans and sends them. A nil Tracing records none.
type Tracing struct {
	provider *sdktrace.TracerProvider
	exporter *exporter
	tracer   trace.Tracer
}

// Open returns the Tracing that the environment asks for, nil where it names no
// collector. Service is the service's name unless OTEL_SERVICE_NAME says
// otherwise. Warn is told once when spans cannot be delivered. Whoever gets a
// Tracing closes it.
func Open(ctx context.Context, service string, warn func(error)) (*Tracing, error) {
	to, err := fromEnvironment(ctx, os.Getenv)
	if err != nil || to == nil {
		return nil, err
	}
	return New(ctx, to, service, warn)
}

// New returns a Tracing that sends to an exporter.
func New(ctx context.Context, to sdktrace.SpanExporter, service string, warn func(error)) (*Tracing, error) {
	about, err := resource.New(ctx,
		resource.WithHost(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", version.String())),
		resource.WithFromEnv(), // wins over the others
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("describing this process for traces: %w", err)
	}
	t := &Tracing{exporter: newExporter(to, warn)}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(t.exporter), sdktrace.WithResource(about), sdktrace.WithIDGenerator(ids{}),
	)
	t.tracer = t.provider.Tracer(Library, trace.WithInstrumentationVersion(version.String()))
	return t, nil
}

// Close sends what has not been sent, for as long as within, and gives up on the
// rest.
func (t *Tracing) Close(within time.Duration) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	stop := context.AfterFunc(ctx, t.exporter.giveUp)
	defer stop()
	// What is lost the exporter has told.
	_ = t.provider.Shutdown(ctx)
	t.exporter.giveUp()
}

// Tracer begins spans. That of a nil Tracing hands the span of the context on.
func (t *Tracing) Tracer() trace.Tracer {
	if t == nil {
		return noop.NewTracerProvider().Tracer(Library)
	}
	return t.tracer
}

// On reports whether spans are recorded.
func (t *Tracing) On() bool { return t != nil }
