package executor

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"belay.run/internal/run"
	"belay.run/internal/task"
	"belay.run/internal/tracing"
)

// trace begins the span of a task that was started, in the trace of its origin,
// which it makes the parent of what the task asks of others. The span is nil where
// nobody wants any.
func (e *Executor) trace(ctx context.Context, it *item, o *task.Origin) (context.Context, trace.Span) {
	if e.config.Tracer == nil {
		return ctx, nil
	}
	scope := tracing.Scope{Tenant: o.Tenant, Project: o.Project, Pipeline: o.Pipeline, Run: o.Run, Node: o.Node}
	ctx, span := e.config.Tracer.Start(tracing.WithParent(ctx, o.TraceParent, ""), "task "+it.task.Type, //nolint:spancheck // traceEnd ends it
		trace.WithAttributes(append(scope.Attributes(),
			attribute.String("belay.task", it.task.ID), attribute.String("belay.target", it.at),
			attribute.Int64("belay.waited_ms", it.began.Sub(it.queued).Milliseconds()))...))
	o.TraceParent, _ = tracing.Parent(ctx)
	return ctx, span //nolint:spancheck // as above
}

// traceEnd ends the span of a task that came to f, nil if it succeeded.
func traceEnd(span trace.Span, f *task.Failure) {
	status := run.Succeeded
	if f != nil {
		status = f.Trigger.Status()
		span.SetAttributes(attribute.String(tracing.AttrTrigger, string(f.Trigger)))
		span.SetStatus(codes.Error, string(f.Trigger))
	}
	span.SetAttributes(attribute.String(tracing.AttrStatus, string(status)))
	span.End()
}
