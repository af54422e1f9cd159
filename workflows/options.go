package workflows

import (
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

const (
	// maxInFlight bounds the activities of one stage that are pending at once.
	// Past 2,000 pending Temporal blocks a workflow for ever.
	maxInFlight = 100

	// waitTimeout is how long a step may wait for a process slot on its host.
	waitTimeout = time.Hour

	// hostPickup is how long a live host may take to start an activity before
	// one looks whether it lives. A busy one is given the activity again.
	hostPickup = 10 * time.Second

	// heartbeatMargin on top of the grace period is the heartbeat timeout of a
	// step. It exceeds the dead-man timer of the step's supervisor, so that a
	// tree is gone before the server may start another attempt.
	heartbeatMargin = 25 * time.Second

	// moveWithin is how long, over finally_timeout, steps that follow may wait for
	// another host in place of a lost one.
	moveWithin = time.Minute

	// maxReruns bounds how often a stage moves to another host.
	maxReruns = 3

	// maxStageOutputs and maxRunOutputs bound the outputs of all steps of a
	// stage and of a run, in bytes.
	maxStageOutputs = 512 << 10
	maxRunOutputs   = 1 << 20

	// causePatience is how long a stage that its parent cancelled waits for
	// the cause that the parent passes on.
	causePatience = 10 * time.Second
)

// TaskTimeout is the workflow task timeout of a workflow with so many stages or
// steps: how long a task that a killed worker held stays lost. Temporal's
// default, 10 s, is left to large ones: a worker that takes one over first
// replays its history, and too short a time would throw that away again and
// again.
func TaskTimeout(nodes int) time.Duration {
	const large = 100
	if nodes >= large {
		return 10 * time.Second
	}
	return 2 * time.Second
}

// controlOptions are for short activities beside the workflows: planning,
// reading a cause.
func controlOptions() workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:           run.QueueWorkflows,
		StartToCloseTimeout: 30 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: 200 * time.Millisecond, MaximumInterval: 10 * time.Second},
	}
}

// aliveOptions are for looking whether a host lives, which watches it a while.
func aliveOptions() workflow.ActivityOptions {
	o := controlOptions()
	o.StartToCloseTimeout = 2 * time.Minute
	o.HeartbeatTimeout = 10 * time.Second
	return o
}

// bindOptions are for finding a host: it waits until one polls the queue.
func bindOptions(queue string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:           queue,
		StartToCloseTimeout: 30 * time.Second,
		Summary:             "takes the stage onto a host",
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: time.Second, MaximumInterval: 10 * time.Second},
	}
}

// prepareOptions are for filling a workspace, or saving from it: as long as the
// stage has, as it may move gigabytes.
func prepareOptions(queue string, stage time.Duration, summary string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              queue,
		ScheduleToStartTimeout: hostPickup,
		StartToCloseTimeout:    stage,
		HeartbeatTimeout:       heartbeatMargin,
		WaitForCancellation:    true,
		Summary:                summary,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, MaximumInterval: 10 * time.Second, MaximumAttempts: 5,
		},
	}
}

// stepOptions are for an attempt of a step and those after it. The step's own
// timeout is enforced by the step itself, which knows when its process began;
// StartToClose is a backstop: when it ran out, the server would start the next
// attempt beside the dying one.
func stepOptions(queue string, s *spec.Step, attempts int, release time.Duration) workflow.ActivityOptions {
	o := workflow.ActivityOptions{
		ActivityID:             s.Name,
		TaskQueue:              queue,
		ScheduleToStartTimeout: hostPickup,
		StartToCloseTimeout:    waitTimeout + s.Timeout + s.GracePeriod + release + 30*time.Second,
		HeartbeatTimeout:       s.GracePeriod + heartbeatMargin,
		WaitForCancellation:    true,
		Summary:                s.Name,
		RetryPolicy:            retryPolicy(s.Retry, attempts),
	}
	if s.Container != nil {
		o.StartToCloseTimeout += activities.ContainerMargin
		o.HeartbeatTimeout += activities.ContainerMargin
	}
	if s.Dedup != nil {
		o.StartToCloseTimeout += waitTimeout + s.Dedup.ClaimTimeout // it may wait for its key, too
	}
	return o
}

// retryPolicy is a step's retry without the attempts already made.
func retryPolicy(r spec.Retry, made int) *temporal.RetryPolicy {
	p := &temporal.RetryPolicy{
		InitialInterval:    max(r.InitialInterval, time.Millisecond),
		MaximumInterval:    r.MaxInterval,
		BackoffCoefficient: max(r.Backoff, 1),
		MaximumAttempts:    int32(max(r.MaxAttempts-made, 1)),
	}
	if p.MaximumInterval != 0 {
		p.MaximumInterval = max(p.MaximumInterval, p.InitialInterval)
	}
	return p
}

// endOptions are for ending processes at once: short, and tried again.
func endOptions(queue string, within time.Duration) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              queue,
		ScheduleToCloseTimeout: within,
		StartToCloseTimeout:    min(within, 30*time.Second),
		Summary:                "ends processes",
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, MaximumInterval: 5 * time.Second},
	}
}

// releaseOptions are for giving a workspace back, within release_timeout.
func releaseOptions(queue string, within time.Duration) workflow.ActivityOptions {
	o := endOptions(queue, within)
	o.StartToCloseTimeout = within
	o.HeartbeatTimeout = heartbeatMargin
	o.Summary = "gives the workspace back"
	return o
}

// stageOptions are for the child workflow of a stage. A parent that is
// terminated asks its stages to cancel, so that they clean up after themselves.
func stageOptions(in *StageInput, node, summary string) workflow.ChildWorkflowOptions {
	return workflow.ChildWorkflowOptions{
		WorkflowID:            run.ChildID(in.ID, in.RunKey, node),
		WorkflowTaskTimeout:   TaskTimeout(in.Stage.Size()),
		WaitForCancellation:   true,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:         summary,
		Priority:              run.Priority(in.Tenant, 0),
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(AttrTenant).ValueSet(in.Tenant),
			temporal.NewSearchAttributeKeyKeyword(AttrProject).ValueSet(in.Project),
			temporal.NewSearchAttributeKeyKeyword(AttrPipeline).ValueSet(in.Pipeline),
			temporal.NewSearchAttributeKeyKeyword(AttrStatus).ValueSet(string(run.Running)),
		),
	}
}

// claimHeartbeat is how long a worker that claims or waits for a claim may be
// silent.
const claimHeartbeat = 12 * time.Second

// claimOptions are for claiming a pipeline's key: as long as it may wait for
// Redis.
func claimOptions(patience time.Duration) workflow.ActivityOptions {
	o := controlOptions()
	o.StartToCloseTimeout = patience + time.Minute
	o.ScheduleToCloseTimeout = 2*patience + 2*time.Minute
	o.HeartbeatTimeout = claimHeartbeat
	o.WaitForCancellation = true // it may have claimed
	o.Summary = "claims the key"
	return o
}

// awaitOptions are for waiting for other runs, for as long as they take. Who
// waits holds nothing and leaves at once.
func awaitOptions(summary string) workflow.ActivityOptions {
	o := controlOptions()
	o.StartToCloseTimeout = 365 * 24 * time.Hour
	o.HeartbeatTimeout = claimHeartbeat
	o.Summary = summary
	return o
}

// settleOptions are for ending a claim. What has completed is worth waiting for
// Redis: a duplicate would run. That of a run that has not is free in any case,
// as soon as the run is over.
func settleOptions(status run.Status, patience time.Duration) workflow.ActivityOptions {
	o := controlOptions()
	o.StartToCloseTimeout = 10 * time.Second
	o.ScheduleToCloseTimeout = 10 * time.Second
	if status.OK() {
		o.ScheduleToCloseTimeout = max(patience, o.ScheduleToCloseTimeout)
	}
	o.Summary = "settles the claim"
	return o
}
