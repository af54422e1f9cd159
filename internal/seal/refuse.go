package seal

import (
	"context"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"

	"belay.run/internal/run"
)

// refuseWithin bounds the answer to a task that is refused.
const refuseWithin = 10 * time.Second

// answer sends an answer over the connection that a task came by.
type answer func(ctx context.Context, method string, req, reply proto.Message) error

// poller is who asked for a task.
type poller struct{ namespace, identity string }

func origin(req any) poller {
	p, ok := req.(interface {
		GetNamespace() string
		GetIdentity() string
	})
	if !ok {
		return poller{}
	}
	return poller{p.GetNamespace(), p.GetIdentity()}
}

// workflowTask opens a task. One that cannot be opened goes back to Temporal, with
// the reason, and the SDK sees none: it would fail the workflow, which another
// worker may have the key for, or this one after a restart.
func (b *border) workflowTask(ctx context.Context, by poller, t *workflowservice.PollWorkflowTaskQueueResponse, send answer) (opened bool) {
	if len(t.GetTaskToken()) == 0 {
		return true
	}
	err := b.open(ctx, t)
	if err == nil {
		return true
	}
	reason := keyError(err)
	b.refused("a workflow task", t.GetWorkflowExecution().GetWorkflowId(), reason)
	if t.GetQuery() != nil {
		b.send(ctx, send, workflowservice.WorkflowService_RespondQueryTaskCompleted_FullMethodName, &workflowservice.RespondQueryTaskCompletedRequest{
			TaskToken: t.GetTaskToken(), Namespace: by.namespace,
			CompletedType: enumspb.QUERY_RESULT_TYPE_FAILED, ErrorMessage: reason, Failure: failure(reason),
		}, new(workflowservice.RespondQueryTaskCompletedResponse))
	} else {
		b.send(ctx, send, workflowservice.WorkflowService_RespondWorkflowTaskFailed_FullMethodName, &workflowservice.RespondWorkflowTaskFailedRequest{
			TaskToken: t.GetTaskToken(), Namespace: by.namespace, Identity: by.identity,
			Cause: enumspb.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE, Failure: failure(reason),
		}, new(workflowservice.RespondWorkflowTaskFailedResponse))
	}
	return false
}

// activityTask opens a task. The attempt of one that cannot be opened fails.
func (b *border) activityTask(ctx context.Context, by poller, t *workflowservice.PollActivityTaskQueueResponse, send answer) (opened bool) {
	if len(t.GetTaskToken()) == 0 {
		return true
	}
	err := b.open(ctx, t)
	if err == nil {
		return true
	}
	reason := keyError(err)
	b.refused("an activity task", t.GetWorkflowExecution().GetWorkflowId(), reason)
	b.send(ctx, send, workflowservice.WorkflowService_RespondActivityTaskFailed_FullMethodName, &workflowservice.RespondActivityTaskFailedRequest{
		TaskToken: t.GetTaskToken(), Namespace: by.namespace, Identity: by.identity, Failure: failure(reason),
	}, new(workflowservice.RespondActivityTaskFailedResponse))
	return false
}

func failure(reason string) *failurepb.Failure {
	return &failurepb.Failure{
		Message: reason, Source: "Belay",
		FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{
			Type: string(run.TriggerDependencyUnavailable),
		}},
	}
}

// send answers. Where that fails, Temporal finds out by the task's timeout.
func (b *border) send(ctx context.Context, send answer, method string, req, reply proto.Message) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refuseWithin)
	defer cancel()
	if err := send(ctx, method, req, reply); err != nil && b.log != nil {
		b.log.Warn("could not give a task back to Temporal", "error", err)
	}
}

func (b *border) refused(what, workflow, reason string) {
	if b.log != nil {
		b.log.Error("refused "+what, "workflow", workflow, "error", reason)
	}
}
