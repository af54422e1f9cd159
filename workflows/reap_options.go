package workflows

import (
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/run"
)

const (
	// unwindWithin is how long the stages of a closed run may take to end: their
	// finally steps and releases run still. Later passes go on waiting.
	unwindWithin = time.Hour
	// maxReaped is how many runs one pass of the janitor takes on.
	maxReaped = 50
	// maxPassEntries is how many resources the result of a pass names; it counts
	// all. maxReapNotes is how many notes it keeps of one run.
	maxPassEntries, maxReapNotes = 1000, 10
	// janitorPatience is how long a pass waits for what it has begun.
	janitorPatience = 30 * time.Second
	// maxRounds bounds how often a run is asked for what more is left of it.
	maxRounds = 20
	// hostReleaseWithin bounds the giving back of one stage by its host.
	hostReleaseWithin = 2 * time.Minute
	// notifyTries is how often somebody is told.
	notifyTries = 5
)

// findOptions are for looking for closed runs. It is tried again with the next
// pass.
func findOptions() workflow.ActivityOptions {
	o := controlOptions()
	o.StartToCloseTimeout = 2 * time.Minute
	o.HeartbeatTimeout = claimHeartbeat
	o.Summary = "looks for closed runs that left something"
	o.RetryPolicy.MaximumAttempts = 3
	return o
}

// expireOptions are for removing what was kept for long enough. What is left is
// for the next time.
func expireOptions() workflow.ActivityOptions {
	o := findOptions()
	o.Summary = "removes what was kept for long enough"
	return o
}

// unwindOptions are for waiting until the stages of a closed run have ended.
func unwindOptions() workflow.ActivityOptions {
	o := awaitOptions("waits until all of the run is closed")
	o.StartToCloseTimeout = unwindWithin
	o.ScheduleToCloseTimeout = unwindWithin
	return o
}

// remainsOptions are for reading what a closed run may have left.
func remainsOptions() workflow.ActivityOptions {
	o := findOptions()
	o.Summary = "reads what may be left"
	return o
}

// resourceOptions are for one try to release so many resources, one after the
// other. A host that does not take it in time is looked upon as gone.
func resourceOptions(queue string, n int) workflow.ActivityOptions {
	o := releaseOptions(queue, time.Duration(n)*2*activities.ReleaseTry+30*time.Second)
	o.ScheduleToStartTimeout = hostPickup
	o.Summary = "gives resources back"
	return o
}

// notifyOptions are for telling people.
func notifyOptions() workflow.ActivityOptions {
	o := controlOptions()
	o.StartToCloseTimeout = time.Minute
	o.HeartbeatTimeout = claimHeartbeat
	o.RetryPolicy = &temporal.RetryPolicy{InitialInterval: time.Second, MaximumAttempts: notifyTries}
	return o
}

// reapOptions are for the child workflow that releases what a closed run, or a
// closed stage, left. It outlives whoever began it. Two never run at once.
func reapOptions(owner activities.Owner) workflow.ChildWorkflowOptions {
	return workflow.ChildWorkflowOptions{
		WorkflowID:            run.ReapID(owner.RunKey, owner.Node),
		TaskQueue:             run.QueueWorkflows,
		WorkflowTaskTimeout:   TaskTimeout(0),
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:         "releases what " + owner.WorkflowID + " left",
	}
}
