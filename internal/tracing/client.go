package tracing

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
)

// Client hands the trace of whoever starts something on to what is started.
func Client() interceptor.ClientInterceptor { return &clientInterceptor{} }

type clientInterceptor struct {
	interceptor.ClientInterceptorBase
}

// InterceptClient comes between a client and Temporal.
func (*clientInterceptor) InterceptClient(next interceptor.ClientOutboundInterceptor) interceptor.ClientOutboundInterceptor {
	i := &clientOutbound{}
	i.Next = next
	return i
}

type clientOutbound struct {
	interceptor.ClientOutboundInterceptorBase
}

// ExecuteWorkflow starts a workflow.
func (c *clientOutbound) ExecuteWorkflow(ctx context.Context, in *interceptor.ClientExecuteWorkflowInput) (client.WorkflowRun, error) {
	carry(ctx, new(Scope)).write(interceptor.Header(ctx))
	return c.Next.ExecuteWorkflow(ctx, in)
}

// ExecuteActivity starts an activity by itself.
func (c *clientOutbound) ExecuteActivity(ctx context.Context, in *interceptor.ClientExecuteActivityInput) (client.ActivityHandle, error) {
	carry(ctx, new(Scope)).write(interceptor.Header(ctx))
	return c.Next.ExecuteActivity(ctx, in)
}
