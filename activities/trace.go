package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"belay.run/internal/run"
	"belay.run/internal/tracing"
)

// traceStep names the span of an activity for the attempt at a step that it is.
func traceStep(ctx context.Context, node string, attempt int) {
	span := trace.SpanFromContext(ctx)
	span.SetName("step " + node)
	span.SetAttributes(attribute.String(tracing.AttrNode, node), attribute.Int(tracing.AttrAttempt, attempt))
}

// traceEnd says in the span how a step ended that did not fail.
func traceEnd(ctx context.Context, res *StepResult) {
	if res == nil {
		return
	}
	span, status := trace.SpanFromContext(ctx), run.Succeeded
	if res.DuplicateOf != nil {
		status = run.Duplicate
		span.SetAttributes(attribute.String(tracing.AttrDuplicateOf, res.DuplicateOf.WorkflowID))
	}
	span.SetAttributes(attribute.String(tracing.AttrStatus, string(status)))
}

// traceDedup says in the span what was decided about a key.
func traceDedup(ctx context.Context, decision string) {
	trace.SpanFromContext(ctx).SetAttributes(attribute.String(tracing.AttrDedup, decision))
}

// parentOf is the W3C trace context that work done in ctx hands on: that of its
// span, else one that is made up: one trace a run, in it one span for each of its
// tasks and their attempts.
func parentOf(ctx context.Context, runKey, span string) string {
	if parent, _ := tracing.Parent(ctx); parent != "" {
		return parent
	}
	of, part := sha256.Sum256([]byte(runKey)), sha256.Sum256([]byte(runKey+"/"+span))
	return "00-" + hex.EncodeToString(of[:16]) + "-" + hex.EncodeToString(part[:8]) + "-01"
}
