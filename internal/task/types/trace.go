package types

import (
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"belay.run/internal/tracing"
)

// trace begins a span of a request within that of its task, if that is recorded,
// and tells the other side of it, unless the task itself names a trace. The
// returned function ends it with the status of the answer, 0 where there was none.
// A path or a query may hold what is secret: of the address it says the host.
func (c call) trace(req *http.Request) (end func(status int)) {
	task := trace.SpanFromContext(req.Context())
	if !task.IsRecording() {
		return func(int) {}
	}
	attributes := []attribute.KeyValue{
		attribute.String("http.request.method", c.method), attribute.String("url.scheme", c.url.Scheme),
		attribute.String("server.address", c.url.Hostname()),
	}
	if port, err := strconv.Atoi(c.url.Port()); err == nil {
		attributes = append(attributes, attribute.Int("server.port", port))
	}
	before, _ := tracing.Parent(req.Context())
	ctx, span := task.TracerProvider().Tracer(tracing.Library).Start(req.Context(), c.method,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	if given := req.Header[headerTrace]; len(given) == 1 && given[0] == before {
		parent, _ := tracing.Parent(ctx)
		req.Header[headerTrace] = []string{parent}
	}
	return func(status int) {
		if status != 0 {
			span.SetAttributes(attribute.Int("http.response.status_code", status))
		}
		if status == 0 || status >= http.StatusBadRequest {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}
