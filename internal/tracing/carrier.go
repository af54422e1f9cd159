package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

const (
	// header is where Temporal's own interceptor for OpenTelemetry keeps a trace:
	// a program that starts runs with that begins their traces.
	header = "_tracer-data"

	keyParent = "traceparent"
	keyState  = "tracestate"
)

// Names of the variables in which processes hand a trace on.
const (
	EnvParent = "TRACEPARENT"
	EnvState  = "TRACESTATE"
)

// carrier is a trace and a scope as they travel in a header.
type carrier map[string]string

// context returns ctx with the carrier's trace and scope; it is not ok where there
// is no trace.
func (c carrier) context(ctx context.Context) (context.Context, bool) {
	with := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{keyParent: c[keyParent], keyState: c[keyState]})
	if !trace.SpanContextFromContext(with).IsRemote() {
		return ctx, false
	}
	return context.WithValue(with, scopeKey{}, Scope{
		Tenant: c[AttrTenant], Project: c[AttrProject], Pipeline: c[AttrPipeline], Run: c[AttrRun], Node: c[AttrNode],
	}), true
}

// carry makes a carrier of the trace in ctx; nil where there is none.
func carry(ctx context.Context, s *Scope) carrier {
	c := carrier{}
	propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(c))
	if len(c) == 0 {
		return nil
	}
	s.pairs(func(name, value string) { c[name] = value })
	return c
}

// read reads the carrier in a header. What is none, or somebody else's, is no
// trace: nothing fails because of it.
func read(headers map[string]*commonpb.Payload) carrier {
	payload := headers[header]
	if payload == nil {
		return nil
	}
	var c carrier
	if converter.GetDefaultDataConverter().FromPayload(payload, &c) != nil {
		return nil
	}
	return c
}

// write puts a carrier into a header.
func (c carrier) write(headers map[string]*commonpb.Payload) {
	if c == nil || headers == nil {
		return
	}
	// Text by text can always be written.
	if payload, err := converter.GetDefaultDataConverter().ToPayload(map[string]string(c)); err == nil {
		headers[header] = payload
	}
}

// WithParent returns ctx in the trace that a traceparent names, if it is one.
func WithParent(ctx context.Context, parent, state string) context.Context {
	with, _ := carrier{keyParent: parent, keyState: state}.context(ctx)
	return with
}

// Parent is the trace of ctx as traceparent and tracestate have it; empty where
// there is none.
func Parent(ctx context.Context) (parent, state string) {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c[keyParent], c[keyState]
}

// TraceID is the id of the trace that a traceparent names; empty where it is none.
func TraceID(parent string) string {
	const form = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	parts := strings.Split(parent, "-")
	if len(parent) != len(form) || len(parts) != strings.Count(form, "-")+1 {
		return ""
	}
	id, err := trace.TraceIDFromHex(parts[1])
	if err != nil {
		return ""
	}
	return id.String()
}
