package runs

import (
	"context"
	"slices"
	"time"

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
	waitsRoom   = "light_room"
	waitsClaim  = "claim"
	waitsLock   = "lock"
	// waitsLost is a wait for a host that has fallen silent.
	waitsLost = "lost_host"
)

// stageWork are the activities of a stage itself, by what it waits for
// meanwhile.
func stageWork() map[string]string {
	return map[string]string{"host": "Bind", "workspace": "Prepare", "resources": "TakeResources", "artifacts": "SaveArtifacts", "release": "Release"}
}

// lookAtHost is the activity that finds out whether a silent host lives.
const lookAtHost = "HostAlive"

// settled is how long a stage waits before one looks why.
const settled = 2 * time.Second

// pending adds to a stage what its workflow cannot know while an activity runs:
// the attempt that its steps are at, and what they and the stage wait for. It
// only adorns: where the server does not tell, the stage stays as it is.
func (c *Client) pending(ctx context.Context, ref Ref, s *run.Stage) {
	busy := map[string]*run.Step{}
	for i := range s.Steps {
		if p := &s.Steps[i]; p.Status == run.Running || p.Status == run.Cancelling {
			busy[p.Name] = p
		}
	}
	work := ""
	if w := s.WaitingFor; w != nil && w.Since != nil && time.Since(*w.Since) > settled {
		work = stageWork()[w.Kind]
	}
	if len(busy) == 0 && work == "" {
		return
	}
	resp, err := c.describeAll(ctx, ref)
	if err != nil {
		return
	}
	var lost *run.WaitingFor
	for _, a := range resp.GetPendingActivities() {
		what := a.GetActivityType().GetName()
		switch p := busy[a.GetActivityId()]; {
		case p != nil:
			delete(busy, p.Name)
			p.Attempts = max(p.Attempts, attemptsOf(a))
			progress := progressOf(a)
			p.Resources = append(p.Resources, progress.Resources...)
			s.Notes = withNotes(s.Notes, progress.Services)
			if p.WaitingFor == nil {
				p.WaitingFor = waitOf(a, s.Host)
			}
		case work != "" && what == work:
			s.WaitingFor.Reason = failureOf(a)
			s.Resources = append(s.Resources, progressOf(a).Resources...)
			if w := heldUp(a); w != nil {
				s.WaitingFor = w
			}
		case what == lookAtHost:
			lost = waiting(waitsLost, s.Host, a.GetScheduledTime())
		}
	}
	for _, p := range busy { // not with their host, which is being looked for
		if p.WaitingFor == nil {
			p.WaitingFor = lost
		}
	}
}

// withNotes are notes with those of more that are not among them.
func withNotes(notes, more []string) []string {
	for _, n := range more {
		if !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	return notes
}

// attemptsOf is how many attempts of a step have begun. Those that wait to be
// taken have not; the step itself also counts those of earlier activities.
func attemptsOf(a *workflowpb.PendingActivityInfo) int {
	begun := int(a.GetAttempt())
	if a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED {
		begun--
	}
	return max(begun, progressOf(a).Attempt)
}

// waitOf is what a pending activity of a step waits for, if it does. Host is
// that of its stage.
func waitOf(a *workflowpb.PendingActivityInfo, host string) *run.WaitingFor {
	switch {
	case a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED && silenced(a):
		return waiting(waitsLost, host, a.GetLastHeartbeatTime())
	case a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED && a.GetLastFailure() != nil:
		return waiting(waitsRetry, a.GetLastFailure().GetMessage(), a.GetLastAttemptCompleteTime())
	case a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:
		return waiting(waitsWorker, "", a.GetScheduledTime())
	case a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED:
		return heldUp(a)
	}
	return nil
}

// silenced reports whether the worker of the last attempt fell silent.
func silenced(a *workflowpb.PendingActivityInfo) bool {
	return a.GetLastFailure().GetTimeoutFailureInfo().GetTimeoutType() == enumspb.TIMEOUT_TYPE_HEARTBEAT
}

// failureOf is why the last attempt of an activity failed, in words.
func failureOf(a *workflowpb.PendingActivityInfo) string {
	if silenced(a) {
		return activities.ErrLost.Error()
	}
	return a.GetLastFailure().GetMessage()
}

// heldUp is what an activity waits for that was started, as it says itself.
func heldUp(a *workflowpb.PendingActivityInfo) *run.WaitingFor {
	switch p := progressOf(a); p.Phase {
	case activities.PhaseWaiting:
		return waiting(waitsSlot, "", a.GetLastStartedTime())
	case activities.PhaseFull:
		return waiting(waitsRoom, p.Name, timestamppb.New(p.Since))
	case activities.PhaseClaiming:
		w := waiting(waitsClaim, p.Name, timestamppb.New(p.Since))
		w.Holder = p.Holder
		return w
	case activities.PhaseLocking:
		w := waiting(waitsLock, p.Name, timestamppb.New(p.Since))
		w.Holder, w.Position = p.Holder, p.Position
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
