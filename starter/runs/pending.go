package runs

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.run/activities"
	"belay.run/internal/run"
)

// What a running step can wait for, as only the server and the step's heartbeat
// know it.
const (
	waitsRetry  = "retry"
	waitsWorker = "worker"
	waitsSlot   = "process_slot"
	waitsClaim  = "claim"
)

// pending adds to a stage what its workflow cannot know while an activity runs:
// the attempt that its steps are at, and what they wait for. It only adorns:
// where the server does not tell, the stage stays as it is.
func (c *Client) pending(ctx context.Context, ref Ref, s *run.Stage) {
	busy := map[string]*run.Step{}
	for i := range s.Steps {
		if p := &s.Steps[i]; p.Status == run.Running || p.Status == run.Cancelling {
			busy[p.Name] = p
		}
	}
	if len(busy) == 0 {
		return
	}
	resp, err := c.describeAll(ctx, ref)
	if err != nil {
		return
	}
	for _, a := range resp.GetPendingActivities() {
		if p := busy[a.GetActivityId()]; p != nil {
			p.Attempts = max(p.Attempts, int(a.GetAttempt()))
			if p.WaitingFor == nil {
				p.WaitingFor = waitOf(a)
			}
		}
	}
}

// waitOf is what a pending activity waits for, if it does.
func waitOf(a *workflowpb.PendingActivityInfo) *run.WaitingFor {
	switch {
	case a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED && a.GetLastFailure() != nil:
		return waiting(waitsRetry, a.GetLastFailure().GetMessage(), a.GetLastAttemptCompleteTime())
	case a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:
		return waiting(waitsWorker, "", a.GetScheduledTime())
	case a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED:
		return heldUp(a)
	}
	return nil
}

// heldUp is what an activity waits for that was started, as it says itself.
func heldUp(a *workflowpb.PendingActivityInfo) *run.WaitingFor {
	switch p := progressOf(a); p.Phase {
	case activities.PhaseWaiting:
		return waiting(waitsSlot, "", a.GetLastStartedTime())
	case activities.PhaseClaiming:
		w := waiting(waitsClaim, p.Name, timestamppb.New(p.Since))
		w.Holder = p.Holder
		return w
	}
	return nil
}

func waiting(kind, name string, since *timestamppb.Timestamp) *run.WaitingFor {
	w := &run.WaitingFor{Kind: kind, Name: name}
	if since != nil {
		at := since.AsTime()
		w.Since = &at
	}
	return w
}

// progressOf is what the activity's last heartbeat says of it.
func progressOf(a *workflowpb.PendingActivityInfo) activities.Progress {
	var progress activities.Progress
	details := a.GetHeartbeatDetails().GetPayloads()
	if len(details) == 0 || converter.GetDefaultDataConverter().FromPayload(details[0], &progress) != nil {
		return activities.Progress{}
	}
	return progress
}
