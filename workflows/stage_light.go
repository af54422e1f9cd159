package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/task"
)

// lightMargin is how much longer than the step's own timeout Temporal waits for
// it: that bounds the task from its start, and this the wait for that too.
const lightMargin = waitTimeout + 30*time.Second

// destination is where a built-in step runs. Plans that are older than the router
// knew two places.
func destination(st *spec.Step) spec.Destination {
	switch {
	case st.Route != nil:
		return st.Route.To
	case st.Uses == "noop":
		return spec.ToControl
	}
	return spec.ToLight
}

// useLight runs a step that needs neither a process nor a workspace.
func (s *stage) useLight(ctx workflow.Context, st *spec.Step, doc *run.Step, from *activities.StepInput) outcome {
	in := activities.LightInput{
		Node: doc.Node, Uses: st.Uses, With: from.Step.With, Claim: from.Claim, Outputs: st.Outputs, Timeout: st.Timeout, Secrets: st.Secrets,
	}
	var light *activities.Light
	var res activities.StepResult
	if to := destination(st); to != spec.ToControl {
		in.To = to
		in.Origin = &task.Origin{Tenant: s.in.Tenant, Project: s.in.Project, Pipeline: s.in.Pipeline, Run: s.in.RunKey, Node: doc.Node}
	}
	if in.To != spec.ToHost {
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, lightOptions(st)), light.RunLight, in).Get(ctx, &res)
		return readOutcome(doc.Node, &res, err)
	}
	again := func(made int) (workflow.ActivityOptions, any) {
		in.Attempts += made
		return heavyOptions(s.host.Queue, st, in.Attempts), in
	}
	opts, _ := again(0)
	err := s.onHost(ctx, opts, again, light.RunLight, in, &res)
	return readOutcome(doc.Node, &res, err)
}

// lightOptions are for steps that run beside others in a worker. A noop only
// passes control, and runs on the queue of the workflows, whose worker can be
// handed it without a round trip. Nobody watches it, as it takes no time.
func lightOptions(s *spec.Step) workflow.ActivityOptions {
	o := workflow.ActivityOptions{
		ActivityID:          s.Name,
		TaskQueue:           run.QueueLight,
		StartToCloseTimeout: s.Timeout + lightMargin,
		HeartbeatTimeout:    claimHeartbeat,
		WaitForCancellation: true,
		Summary:             s.Name,
		RetryPolicy:         retryPolicy(s.Retry, 0),
	}
	if destination(s) == spec.ToControl {
		o.TaskQueue, o.StartToCloseTimeout, o.HeartbeatTimeout = run.QueueWorkflows, s.Timeout, 0
	}
	if s.Dedup != nil {
		o.StartToCloseTimeout += waitTimeout + s.Dedup.ClaimTimeout // it may wait for its key, too
		o.HeartbeatTimeout = heartbeatMargin
	}
	return o
}

// heavyOptions are for those that the router has sent to the stage's host.
func heavyOptions(queue string, s *spec.Step, attempts int) workflow.ActivityOptions {
	o := lightOptions(s)
	o.TaskQueue, o.ScheduleToStartTimeout = queue, hostPickup
	o.RetryPolicy = retryPolicy(s.Retry, attempts)
	return o
}
