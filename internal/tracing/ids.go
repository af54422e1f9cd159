package tracing

import (
	"context"
	"crypto/rand"
	"crypto/sha256"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// ids makes the ids of spans: random ones, save those of workflows. A workflow that
// goes on in another process must find the id under which its children know it.
type ids struct{}

var _ sdktrace.IDGenerator = ids{}

// madeOf is the key, in a context, of what the id of the next span is made of; the
// value is a fixed.
type madeOf struct{}

// fixed says what ids are made of: the trace's, where it begins one, and the span's.
type fixed struct{ trace, span string }

// NewIDs makes those of a span that begins a trace.
func (i ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	var id trace.TraceID
	if f, ok := ctx.Value(madeOf{}).(fixed); ok {
		id = traceIDOf(f.trace)
	} else {
		_, _ = rand.Read(id[:]) // it never fails
	}
	return id, i.NewSpanID(ctx, id)
}

// NewSpanID makes that of another span.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if f, ok := ctx.Value(madeOf{}).(fixed); ok {
		return spanIDOf(f.span)
	}
	var id trace.SpanID
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

func traceIDOf(text string) (id trace.TraceID) {
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id
}

func spanIDOf(text string) (id trace.SpanID) {
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id
}
