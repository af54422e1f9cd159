package cli

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"belay.run/internal/tracing"
)

// traceFlush is how long a command waits for its spans to be taken: nobody is to
// notice a collector that is away.
const traceFlush = time.Second

// openTracing opens what the environment says of traces. Nothing stops because of
// them.
func (a *app) openTracing(ctx context.Context) *tracing.Tracing {
	warn := func(err error) {
		// Where standard error is closed nobody wants to know.
		_, _ = fmt.Fprintf(a.Err, "note: its trace was not delivered: %v\n", err)
	}
	t, err := tracing.Open(ctx, "belay", warn)
	if err != nil {
		warn(err)
	}
	return t
}

// trace begins the span of a command that starts something, in the trace of
// whoever ran the command. The returned function ends it with the command's error.
func (a *app) trace(ctx context.Context, conn *Connection, name string, s *tracing.Scope) (context.Context, func(error)) {
	ctx = tracing.WithParent(ctx, a.Getenv(tracing.EnvParent), a.Getenv(tracing.EnvState))
	ctx, span := conn.Tracing.Tracer().Start(ctx, name, trace.WithAttributes(s.Attributes()...)) //nolint:spancheck // the returned function ends it
	return ctx, func(err error) {                                                                //nolint:spancheck // as above
		if err != nil {
			code := exitError(err).Code
			span.SetAttributes(attribute.Int("belay.exit_code", code))
			span.SetStatus(codes.Error, fmt.Sprintf("exit code %d", code))
		}
		span.End()
	}
}

// traceRun says in a command's span which run stands for it.
func traceRun(ctx context.Context, b *begun) {
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(attribute.String("belay.run_id", b.ref.ID), attribute.String("temporal.run_id", b.ref.RunID))
	decision := "started"
	switch {
	case b.rejected:
		decision = "rejected"
	case b.attached:
		decision = "attached"
	}
	span.SetAttributes(attribute.String(tracing.AttrDedup, decision))
}
