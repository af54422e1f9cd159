package tracing

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Worker has workflows of these types, and the activities that belong to a trace,
// make spans, and their log lines say for whom they are.
func Worker(t *Tracing, workflows ...string) interceptor.WorkerInterceptor {
	return &workerInterceptor{tracing: t, workflows: workflows}
}

type workerInterceptor struct {
	interceptor.WorkerInterceptorBase

	tracing   *Tracing
	workflows []string
}

// InterceptActivity comes between the worker and every activity.
func (w *workerInterceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &activityInbound{tracing: w.tracing}
	i.Next = next
	return i
}

// InterceptWorkflow comes between the worker and every workflow.
func (w *workerInterceptor) InterceptWorkflow(ctx workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	if !slices.Contains(w.workflows, workflow.GetInfo(ctx).WorkflowType.Name) {
		return next
	}
	i := &workflowInbound{state: &state{tracing: w.tracing}}
	i.Next = next
	return i
}

type activityInbound struct {
	interceptor.ActivityInboundInterceptorBase

	tracing *Tracing
}

// Init adds what log lines say.
func (a *activityInbound) Init(next interceptor.ActivityOutboundInterceptor) error {
	i := &activityOutbound{}
	i.Next = next
	return a.Next.Init(i)
}

// ExecuteActivity runs an attempt of an activity, in a span of its own where it
// belongs to a trace.
func (a *activityInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	ctx, ok := read(interceptor.Header(ctx)).context(ctx)
	if !ok {
		return a.Next.ExecuteActivity(ctx, in)
	}
	info, scope := activity.GetInfo(ctx), ScopeOf(ctx)
	ctx, span := a.tracing.Tracer().Start(ctx, info.ActivityType.Name, trace.WithAttributes(append(scope.Attributes(),
		attribute.String("temporal.workflow_id", info.WorkflowExecution.ID), attribute.String("temporal.run_id", info.WorkflowExecution.RunID),
		attribute.Int(AttrAttempt, int(info.Attempt)))...))
	defer span.End()
	res, err := a.Next.ExecuteActivity(ctx, in)
	conclude(span, err)
	return res, err
}

type activityOutbound struct {
	interceptor.ActivityOutboundInterceptorBase
}

// GetLogger is the activity's logger.
func (a *activityOutbound) GetLogger(ctx context.Context) log.Logger {
	s := ScopeOf(ctx)
	return withScope(a.Next.GetLogger(ctx), &s, trace.SpanContextFromContext(ctx))
}

// withScope adds what every line of a logger says of whom it is for.
func withScope(l log.Logger, s *Scope, at trace.SpanContext) log.Logger {
	var pairs []any
	for _, p := range [...][2]string{{"tenant", s.Tenant}, {"pipeline", s.Pipeline}, {"run", s.Run}, {"node", s.Node}} {
		if p[1] != "" {
			pairs = append(pairs, p[0], p[1])
		}
	}
	if at.HasTraceID() {
		pairs = append(pairs, "trace_id", at.TraceID().String())
	}
	if len(pairs) == 0 {
		return l
	}
	return log.With(l, pairs...)
}

type workflowInbound struct {
	interceptor.WorkflowInboundInterceptorBase

	state *state
}

// Init adds what is handed on to activities and children, and what log lines say.
func (w *workflowInbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	i := &workflowOutbound{state: w.state}
	i.Next = next
	return w.Next.Init(i)
}

// ExecuteWorkflow runs a workflow in a span. That begins again wherever the
// workflow is replayed, under the same id, and is recorded by the one worker that
// sees the workflow's end; a worker which drops the workflow from its cache ends
// this goroutine instead of returning here.
func (w *workflowInbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	s := w.state
	s.begin(workflow.GetInfo(ctx), read(interceptor.WorkflowHeader(ctx)))
	res, err := w.Next.ExecuteWorkflow(workflow.WithValue(ctx, stateKey{}, s), in)
	if !workflow.IsReplaying(ctx) {
		s.end(err)
	}
	return res, err
}

type workflowOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase

	state *state
}

// ExecuteActivity schedules an activity.
func (w *workflowOutbound) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	w.state.carry().write(interceptor.WorkflowHeader(ctx))
	return w.Next.ExecuteActivity(ctx, activityType, args...)
}

// ExecuteChildWorkflow starts a child.
func (w *workflowOutbound) ExecuteChildWorkflow(ctx workflow.Context, childWorkflowType string, args ...any) workflow.ChildWorkflowFuture {
	w.state.carry().write(interceptor.WorkflowHeader(ctx))
	return w.Next.ExecuteChildWorkflow(ctx, childWorkflowType, args...)
}

// NewContinueAsNewError has a workflow go on in another, in the same trace.
func (w *workflowOutbound) NewContinueAsNewError(ctx workflow.Context, wfn any, args ...any) error {
	w.state.carry().write(interceptor.WorkflowHeader(ctx))
	return w.Next.NewContinueAsNewError(ctx, wfn, args...)
}

// GetLogger is the workflow's logger, which says nothing on replay.
func (w *workflowOutbound) GetLogger(ctx workflow.Context) log.Logger {
	return withScope(w.Next.GetLogger(ctx), &w.state.scope, trace.SpanContextFromContext(w.state.ctx))
}

// conclude says in a span how what it is of ended: the trigger of a failure and
// not its message, which may quote what is not for everybody.
func conclude(span trace.Span, err error) {
	if err == nil || !span.IsRecording() {
		return
	}
	if _, cancelled := errors.AsType[*temporal.CanceledError](err); cancelled || errors.Is(err, context.Canceled) {
		span.SetAttributes(attribute.String(AttrStatus, "cancelled"))
		return
	}
	why := ""
	if told, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		why = told.Type()
		span.SetAttributes(attribute.String(AttrTrigger, why))
	}
	span.SetStatus(codes.Error, why)
}

// notBefore is now, unless that is before the beginning: Temporal's clock and that
// of this machine may differ.
func notBefore(began, now time.Time) time.Time {
	if now.Before(began) {
		return began
	}
	return now
}
