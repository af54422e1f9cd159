package runs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/starter/runs"
	"belay.run/starter/testkit/frontend"
	"belay.run/workflows"
)

const threeStages = `version: 1
name: planned
stages:
  - name: first
    steps: [{name: a, uses: noop}]
  - name: second
    needs: [first]
    matrix: {os: [linux, mac]}
    env: {OS: "${{ matrix.os }}"}
    steps: [{name: a, run: 'echo "$OS"', retry: {max_attempts: 3}}]
`

func TestTerminatedRunShowsWhatItNeverStartedAndHowItEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := &run.Document{Pipeline: "planned"}
	w := b.pipeline("d/d/planned/r/1", doc)
	w.Input = workflows.PipelineInput{File: threeStages}
	first := b.stage(doc, "first", &run.Stage{Status: run.Cancelling, Steps: []run.Step{step("first/a", run.Cancelling)}})
	w.Events = frontend.ChildEvents(5, first)
	b.server.Terminate(w, "ann@desk", "stuck")
	ref := runs.Ref{ID: doc.ID, RunID: runID}

	snap, err := b.client.Reader(ref).Read(t.Context())
	require.NoError(t, err)
	require.True(t, snap.Closed)
	require.False(t, snap.Settled, "its stage still unwinds")
	nodes := map[string]run.Status{}
	for _, s := range snap.Document.Stages {
		nodes[s.Node] = s.Status
	}
	require.Equal(t, map[string]run.Status{
		"first": run.Cancelling, "second[os=linux]": run.Skipped, "second[os=mac]": run.Skipped,
	}, nodes)

	states := 0
	last, err := b.client.Follow(t.Context(), ref, func(*runs.Snapshot) error {
		if states++; states == 1 {
			b.server.Cancel(first, &run.Stage{Name: "first", Node: "first", Status: run.Cancelled})
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, run.Cancelled, last.Stages[0].Status, "it is followed until its stages have ended")
}

func TestPlanOfARun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.pipeline("d/d/planned/r/1", &run.Document{})
	w.Input = workflows.PipelineInput{File: threeStages}
	plan, err := b.client.Plan(t.Context(), runs.Ref{ID: w.ID, RunID: runID})
	require.NoError(t, err)
	require.Equal(t, 3, plan.Stages[1].Steps[0].Retry.MaxAttempts)
	w.Input = workflows.PipelineInput{File: "stagse: []"}
	_, err = b.client.Plan(t.Context(), runs.Ref{ID: w.ID, RunID: runID})
	require.Error(t, err)
}

func TestReadShowsAttemptsAndWaitsOfRunningSteps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := &run.Document{Pipeline: "p"}
	b.pipeline("d/d/p/r/1", doc)
	full := &run.Stage{Status: run.Running, Host: "h"}
	for _, name := range []string{"backoff", "queued", "slot", "busy", "done", "silent"} {
		full.Steps = append(full.Steps, run.Step{Name: name, Node: "build/" + name, Status: run.Running})
	}
	full.Steps[4].Status = run.Succeeded
	build := b.stage(doc, "build", full)
	since := timestamppb.New(time.Now().Add(-time.Minute))
	beat := func(phase string) *commonpb.Payloads {
		return frontend.Payloads(activities.Progress{Phase: phase, Attempt: 4, Services: []string{"db ended"}})
	}
	build.Pending = []*workflowpb.PendingActivityInfo{
		{
			ActivityId: "backoff", State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, Attempt: 2,
			LastFailure: &failurepb.Failure{Message: "exit code 1"}, LastAttemptCompleteTime: since,
		},
		{ActivityId: "queued", State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, Attempt: 1, ScheduledTime: since},
		{ActivityId: "slot", State: enumspb.PENDING_ACTIVITY_STATE_STARTED, Attempt: 1, HeartbeatDetails: beat(activities.PhaseWaiting)},
		{ActivityId: "busy", State: enumspb.PENDING_ACTIVITY_STATE_STARTED, Attempt: 3, HeartbeatDetails: beat(activities.PhaseRunning)},
		{ActivityId: "done", State: enumspb.PENDING_ACTIVITY_STATE_STARTED, Attempt: 7},
		{
			ActivityId: "silent", State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, Attempt: 2, LastHeartbeatTime: since,
			LastFailure: heartbeatTimeout(), LastAttemptCompleteTime: timestamppb.Now(),
		},
	}
	snap, err := b.client.Reader(runs.Ref{ID: doc.ID, RunID: runID}).Read(t.Context())
	require.NoError(t, err)
	steps := snap.Document.Stages[0].Steps
	require.Equal(t, []string{"db ended"}, snap.Document.Stages[0].Notes, "once, by two steps")
	require.Equal(t, 1, steps[0].Attempts, "the second has not begun")
	require.Equal(t, "retry", steps[0].WaitingFor.Kind)
	require.Equal(t, "exit code 1", steps[0].WaitingFor.Name)
	require.Equal(t, since.AsTime(), *steps[0].WaitingFor.Since)
	require.Equal(t, "worker", steps[1].WaitingFor.Kind)
	require.Zero(t, steps[1].Attempts)
	require.Equal(t, "process_slot", steps[2].WaitingFor.Kind)
	require.Equal(t, 4, steps[3].Attempts, "with those of earlier activities, as the step counts")
	require.Nil(t, steps[3].WaitingFor)
	require.Zero(t, steps[4].Attempts, "what ended is left alone")
	require.Equal(t, 1, steps[5].Attempts)
	lost := since.AsTime()
	require.Equal(t, &run.WaitingFor{Kind: "lost_host", Name: "h", Since: &lost}, steps[5].WaitingFor)
}

// TestReadShowsStepsWhoseHostIsLookedFor: the stage asks whether its host lives,
// and nobody has its step meanwhile.
func TestReadShowsStepsWhoseHostIsLookedFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := &run.Document{Pipeline: "p"}
	b.pipeline("d/d/p/r/1", doc)
	build := b.stage(doc, "build", &run.Stage{Status: run.Running, Host: "h", Steps: []run.Step{step("build/a", run.Running)}})
	since := timestamppb.New(time.Now().Add(-time.Minute))
	build.Pending = []*workflowpb.PendingActivityInfo{{
		ActivityId: "5", ActivityType: &commonpb.ActivityType{Name: "HostAlive"}, ScheduledTime: since,
		State: enumspb.PENDING_ACTIVITY_STATE_STARTED, Attempt: 1,
	}}
	snap, err := b.client.Reader(runs.Ref{ID: doc.ID, RunID: runID}).Read(t.Context())
	require.NoError(t, err)
	lost := since.AsTime()
	require.Equal(t, &run.WaitingFor{Kind: "lost_host", Name: "h", Since: &lost}, snap.Document.Stages[0].Steps[0].WaitingFor)
}

func heartbeatTimeout() *failurepb.Failure {
	return &failurepb.Failure{
		Message: "activity Heartbeat timeout",
		FailureInfo: &failurepb.Failure_TimeoutFailureInfo{TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{
			TimeoutType: enumspb.TIMEOUT_TYPE_HEARTBEAT,
		}},
	}
}

// TestReadShowsWhyAStageWaits: that no host can take a stage is told with the
// reason, as soon as it takes long.
func TestReadShowsWhyAStageWaits(t *testing.T) {
	t.Parallel()
	full := &failurepb.Failure{Message: "taking stage build onto host h: no space left on device"}
	for name, tc := range map[string]struct {
		kind, activity string
		age            time.Duration
		failure        *failurepb.Failure
		want           string
	}{
		"no host takes it":      {"host", "Bind", time.Minute, full, full.GetMessage()},
		"only now":              {"host", "Bind", 0, full, ""},
		"nothing failed":        {"host", "Bind", time.Minute, nil, ""},
		"another activity":      {"host", "HostAlive", time.Minute, full, ""},
		"its worker was silent": {"workspace", "Prepare", time.Minute, heartbeatTimeout(), "the host does not answer any more"},
		"a group":               {"group", "Bind", time.Minute, full, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			doc := &run.Document{Pipeline: "p"}
			b.pipeline("d/d/p/r/1", doc)
			since := time.Now().Add(-tc.age)
			build := b.stage(doc, "build", &run.Stage{
				Status: run.Running, WaitingFor: &run.WaitingFor{Kind: tc.kind, Name: "x", Since: &since},
			})
			doc.Stages[0].WaitingFor = nil // only the stage knows
			build.Pending = []*workflowpb.PendingActivityInfo{{
				ActivityId: "5", ActivityType: &commonpb.ActivityType{Name: tc.activity},
				State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, Attempt: 3, LastFailure: tc.failure,
			}}
			snap, err := b.client.Reader(runs.Ref{ID: doc.ID, RunID: runID}).Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, tc.want, snap.Document.Stages[0].WaitingFor.Reason)
		})
	}
}

func TestFollowWaitsOutAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	doc := &run.Document{Pipeline: "p"}
	w := b.pipeline("d/d/p/r/1", doc)
	states := 0
	last, err := b.client.Follow(t.Context(), runs.Ref{ID: doc.ID, RunID: runID}, func(s *runs.Snapshot) error {
		switch states++; {
		case states == 1:
			b.server.Outage(true)
		case s.NoAnswer != "":
			require.Equal(t, run.Running, s.Document.Status, "the last state stays")
			b.server.Outage(false)
			b.server.Complete(w, &run.Document{ID: doc.ID, Pipeline: "p", Status: run.Succeeded})
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, run.Succeeded, last.Status)
	require.Equal(t, 3, states)
}
