package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.temporal.io/sdk/workflow"
)

type stateKey struct{}

// state is the trace of one workflow. Only one of a workflow's goroutines runs at a
// time.
type state struct {
	tracing *Tracing
	// ctx has the span, or where none is recorded the trace that the workflow
	// belongs to, if any.
	ctx   context.Context //nolint:containedctx // a workflow's own context holds no spans
	span  trace.Span
	began time.Time
	scope Scope
}

// begin begins the span of a workflow, in the trace of whoever started it.
func (s *state) begin(info *workflow.Info, from carrier) {
	first := info.FirstRunID
	if first == "" {
		first = info.WorkflowExecution.RunID
	}
	ctx, _ := from.context(context.Background())
	s.scope = ScopeOf(ctx)
	s.began = info.WorkflowStartTime
	s.ctx, s.span = s.tracing.Tracer().Start( //nolint:spancheck // end ends it
		context.WithValue(ctx, madeOf{}, fixed{trace: first, span: info.WorkflowExecution.RunID}),
		info.WorkflowType.Name, trace.WithTimestamp(s.began), trace.WithAttributes(
			attribute.String("temporal.workflow_id", info.WorkflowExecution.ID), attribute.String("temporal.run_id", info.WorkflowExecution.RunID)),
	)
}

func (s *state) end(err error) {
	if !s.span.IsRecording() {
		return
	}
	s.span.SetAttributes(s.scope.Attributes()...)
	conclude(s.span, err)
	s.span.End(trace.WithTimestamp(notBefore(s.began, time.Now())))
}

func (s *state) carry() carrier { return carry(s.ctx, &s.scope) }

// of is the trace of a workflow; one that is thrown away where it has none, as in
// a test.
func of(ctx workflow.Context) *state {
	if s, ok := ctx.Value(stateKey{}).(*state); ok {
		return s
	}
	return &state{span: noop.Span{}}
}

// Tell names the span of a workflow and says for whom it runs.
func Tell(ctx workflow.Context, name string, s *Scope) {
	at := of(ctx)
	at.scope = *s
	at.span.SetName(name)
}

// Note adds to what the span of a workflow says.
func Note(ctx workflow.Context, name, value string) {
	of(ctx).span.SetAttributes(attribute.String(name, value))
}
