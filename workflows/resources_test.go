package workflows_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/workflows"
)

// groups stands in for concurrency groups of one slot each, and tells the members.
type groups struct {
	b     *bench
	world *world

	mu    sync.Mutex
	held  map[string]string // node by group
	queue map[string][]activities.SlotInput
}

func (g *groups) AcquireSlot(_ context.Context, in activities.SlotInput) error {
	g.world.note("ask " + in.Group + " for " + in.Request.Owner.Node)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[in.Group] == "" {
		g.grant(in)
	} else {
		g.queue[in.Group] = append(g.queue[in.Group], in)
	}
	return nil
}

func (g *groups) grant(in activities.SlotInput) {
	g.held[in.Group] = in.Request.Owner.Node
	g.b.RegisterDelayedCallback(func() {
		g.b.SignalWorkflow(activities.SlotNewsSignal, activities.SlotNews{
			State: activities.SlotGranted, Group: in.Group, Node: in.Request.Owner.Node,
		})
	}, time.Millisecond)
}

func (g *groups) ReleaseSlot(_ context.Context, in activities.SlotInput) error {
	g.world.note("leave " + in.Group + " by " + in.Request.Owner.Node)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[in.Group] == in.Request.Owner.Node {
		g.held[in.Group] = ""
		if q := g.queue[in.Group]; len(q) > 0 {
			g.queue[in.Group] = q[1:]
			g.grant(q[0])
		}
	}
	return nil
}

// releaser stands in for what gives resources back.
type releaser struct {
	// answers are what a try comes to, one after the other, the last for ever.
	answers []func(activities.ReleaseInput) (*activities.ReleaseResult, error)
	asked   []activities.ReleaseInput
	queues  []string
	had     []time.Duration // how long each could take
}

func (r *releaser) ReleaseResources(ctx context.Context, in activities.ReleaseInput) (*activities.ReleaseResult, error) {
	r.asked = append(r.asked, in)
	r.had = append(r.had, activity.GetInfo(ctx).ScheduleToCloseTimeout)
	r.queues = append(r.queues, activity.GetInfo(ctx).TaskQueue)
	answer := r.answers[0]
	if len(r.answers) > 1 {
		r.answers = r.answers[1:]
	}
	return answer(in)
}

// become answers that all entries, or e where there are none, are in a state.
func become(state run.ResourceState, e resource.Entry) func(activities.ReleaseInput) (*activities.ReleaseResult, error) {
	return func(in activities.ReleaseInput) (*activities.ReleaseResult, error) {
		out := append([]resource.Entry(nil), in.Entries...)
		if len(out) == 0 {
			out = []resource.Entry{e}
		}
		for i := range out {
			out[i].State = state
			out[i].Attempts++
			if state != run.ResourceReleased {
				out[i].Error = "no"
			}
		}
		return &activities.ReleaseResult{Entries: out}, nil
	}
}

func holds(list ...spec.Resource) func(*spec.Step) {
	return func(s *spec.Step) { s.Resources = list }
}

func aLock() spec.Resource { return spec.Resource{Kind: resource.KindLock, Name: "prod"} }

func heldLock() resource.Entry {
	return resource.Entry{
		Owner: resource.Owner{RunKey: "k", Node: "s/a", Attempt: 1}, Kind: resource.KindLock, Name: "prod",
		Scope: resource.ScopeStep, State: run.ResourceReleasing, Attempts: 1, Error: "no",
	}
}

// leavesHeld ends a step well, save that it could not give something back.
func leavesHeld(e resource.Entry) func(context.Context, activities.StepInput) (*activities.StepResult, error) {
	return func(context.Context, activities.StepInput) (*activities.StepResult, error) {
		now := time.Now()
		return &activities.StepResult{
			Attempt: 1, StartedAt: now, EndedAt: now, Resources: []run.Resource{e.Document()}, Unreleased: []resource.Entry{e},
		}, nil
	}
}

func setupReleaser(t *testing.T, steps []spec.Step, answers ...func(activities.ReleaseInput) (*activities.ReleaseResult, error)) (*bench, *releaser) {
	t.Helper()
	b := setup(t, plan(stage("s", steps)))
	r := &releaser{answers: answers}
	b.RegisterActivity(r)
	return b, r
}

// stageDoc runs the only stage alone, to see its steps.
func stageDoc(t *testing.T, b *bench, release ...time.Duration) *run.Stage {
	t.Helper()
	release = append(release, 2*time.Minute)
	b.ExecuteWorkflow(workflows.Stage, workflows.StageInput{
		RunKey: "k", RunID: "r", ID: "t/p/n/r/1", Tenant: "t", Project: "p", Stage: b.world.plan.Stages[0], ReleaseTimeout: release[0],
	})
	require.NoError(t, b.GetWorkflowError())
	var doc run.Stage
	require.NoError(t, b.GetWorkflowResult(&doc))
	return &doc
}

func TestStageReleasesWhatAnAttemptCouldNot(t *testing.T) {
	t.Parallel()
	b, r := setupReleaser(t, []spec.Step{step("a", holds(aLock()))},
		become(run.ResourceReleasing, heldLock()), become(run.ResourceReleasing, heldLock()), become(run.ResourceReleased, heldLock()))
	b.world.steps["a"] = leavesHeld(heldLock())
	began := b.Now()
	doc := stageDoc(t, b)
	require.Equal(t, run.Succeeded, doc.Status)
	require.Equal(t, []run.Resource{{Kind: "lock", Name: "prod", State: run.ResourceReleased, Attempts: 4, Error: ""}},
		withoutErrors(doc.Steps[0].Resources))
	require.Len(t, r.asked, 3)
	require.False(t, r.asked[2].Last)
	require.GreaterOrEqual(t, b.Now().Sub(began), 7*time.Second, "after 1, 2 and 4 seconds")
	require.Equal(t, []string{"bind s", "run s/a", "release s"}, b.world.all())
	require.Equal(t, []run.Resource{{Kind: "workspace", Name: "h1", State: run.ResourceReleased, Attempts: 1}}, doc.Resources)
}

func withoutErrors(list []run.Resource) []run.Resource {
	out := append([]run.Resource(nil), list...)
	for i := range out {
		out[i].Error = ""
	}
	return out
}

func TestWhatCannotBeReleasedLeaks(t *testing.T) {
	t.Parallel()
	b, r := setupReleaser(t, []spec.Step{step("a", holds(aLock()))}, become(run.ResourceReleasing, heldLock()))
	b.world.steps["a"] = leavesHeld(heldLock())
	doc := stageDoc(t, b)
	require.Equal(t, run.Succeeded, doc.Status, "the step has done its work")
	require.Len(t, r.asked, 5)
	require.True(t, r.asked[4].Last)
	require.Equal(t, []run.Resource{{Kind: "lock", Name: "prod", State: run.ResourceLeaked, Attempts: 6, Error: "no"}}, doc.Steps[0].Resources)
}

// The release_timeout bounds the tries and the waits between them, and what is said
// then is for people.
func TestReleaseTimeoutIsABound(t *testing.T) {
	t.Parallel()
	const within = 6 * time.Second
	b, r := setupReleaser(t, []spec.Step{step("a", holds(aLock()))}, become(run.ResourceReleasing, heldLock()),
		func(activities.ReleaseInput) (*activities.ReleaseResult, error) {
			return nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, nil)
		})
	b.world.steps["a"] = leavesHeld(heldLock())
	began := b.Now()
	doc := stageDoc(t, b, within)
	require.Less(t, b.Now().Sub(began), within, "it does not wait for a try that would be too late")
	require.Len(t, r.asked, 2)
	require.Equal(t, []time.Duration{within - time.Second, within - 3*time.Second}, r.had)
	require.Equal(t, run.ResourceLeaked, doc.Steps[0].Resources[0].State)
	require.Equal(t, "no", doc.Steps[0].Resources[0].Error, "what the last try that could be heard said")
	require.Equal(t, []string{"s/a: nobody could be asked to give back what it held: it was not done when the release_timeout was over"}, doc.Notes)
}

// An attempt whose worker fell silent says nothing: whoever knows is asked.
func TestStageReleasesForALostAttempt(t *testing.T) {
	t.Parallel()
	b, r := setupReleaser(t, []spec.Step{step("a", holds(aLock(), spec.Resource{
		Kind: resource.KindCustom, Name: "w", Acquire: "a", Release: "r",
	}))}, become(run.ResourceReleased, heldLock()))
	b.OnActivity("RunStep", anything, anything).Return(nil, notPickedUp(0))
	b.world.alive = func() bool { return false }
	b.OnActivity("ReleaseResources", anything, anything).Return(nil, notPickedUp(0)).Once()
	b.OnActivity("ReleaseResources", anything, anything).Return(r.ReleaseResources)
	b.ExecuteWorkflow(workflows.Pipeline, workflows.PipelineInput{File: "x"})
	doc := b.document(t)
	require.Equal(t, run.TriggerWorkerLost, doc.Cause.Trigger)
	require.NotEmpty(t, r.asked)
	in := r.asked[0]
	require.Equal(t, "s/a", in.Node)
	require.Len(t, in.Declared, 1, "only what a script could have acquired unknown to all")
	require.Equal(t, "r", in.Declared[0].Release.Script)
	require.Equal(t, 1, in.Declared[0].Attempt)
	require.Equal(t, run.ResourceLeaked, doc.Stages[0].Resources[0].State, "its workspace is the host's")
}

// What a lost attempt held bears the name of its node, as what the next one holds
// does: the stage begins again when it is given back.
func TestStageBeginsAgainWhenWhatItsLostAttemptHeldIsGivenBack(t *testing.T) {
	t.Parallel()
	b, r := setupReleaser(t, []spec.Step{step("a", holds(aLock()))}, become(run.ResourceReleasing, heldLock()),
		become(run.ResourceReleasing, heldLock()), become(run.ResourceReleased, heldLock()))
	b.world.plan.Stages[0].OnWorkerLost = spec.LostRerun
	b.OnActivity("RunStep", anything, anything).Return(nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil)).Once()
	b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
	b.OnActivity("ReleaseResources", anything, anything).Return(
		func(ctx context.Context, in activities.ReleaseInput) (*activities.ReleaseResult, error) {
			b.world.note("give back")
			return r.ReleaseResources(ctx, in)
		})
	require.Equal(t, run.Succeeded, stageDoc(t, b).Status)
	require.Equal(t, []string{"bind s", "alive?", "give back", "give back", "give back", "bind s", "run s/a", "release s"}, b.world.all())
}

// The container of a step is an attempt's like what it declares: it is written down
// under the run, and given back by the stage where the attempt could not.
func TestContainersOfStepsAreGivenBack(t *testing.T) {
	t.Parallel()
	container := resource.Entry{
		Owner: resource.Owner{RunKey: "k", Node: "s/a", Attempt: 1}, Kind: resource.KindContainer, Name: "belay-a",
		Scope: resource.ScopeStep, State: run.ResourceReleasing, Attempts: 1, Error: "the engine is away",
	}
	b, r := setupReleaser(t, []spec.Step{step("a", func(s *spec.Step) {
		s.Container = &spec.Container{Image: spec.Image{Name: "tool"}}
	})}, become(run.ResourceReleased, container))
	var in activities.StepInput
	b.world.steps["a"] = func(ctx context.Context, got activities.StepInput) (*activities.StepResult, error) {
		in = got
		return leavesHeld(container)(ctx, got)
	}
	doc := stageDoc(t, b)
	require.Equal(t, "k", in.Holder.RunKey)
	require.Equal(t, "t/p/n/r/1", in.Holder.WorkflowID)
	require.Equal(t, 2*time.Minute, in.Release)
	require.Len(t, r.asked, 1)
	require.Equal(t, run.ResourceReleased, doc.Steps[0].Resources[0].State)
}

// A step that no host was asked to run has left nothing there.
func TestStepsThatNeverRanHoldNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, plan(stage("s", []spec.Step{
		step("first", failing(on(spec.Ignore))), step("bad", failing(on(spec.Ignore)), func(s *spec.Step) { s.WorkingDir = "${{ env.NONE }}/.." }),
	})))
	doc := stageDoc(t, b)
	require.Equal(t, run.Failed, doc.Steps[1].Status)
	require.Empty(t, doc.Steps[1].Resources)
}

func TestStepsWithoutResourcesAskNobody(t *testing.T) {
	t.Parallel()
	b, r := setupReleaser(t, []spec.Step{step("a")}, func(activities.ReleaseInput) (*activities.ReleaseResult, error) {
		return nil, errors.New("not to be asked")
	})
	require.Equal(t, run.Succeeded, b.run(t).Status)
	require.Empty(t, r.asked)
}

func TestSlotsOfSteps(t *testing.T) {
	t.Parallel()
	slot := func(name string) spec.Resource {
		return spec.Resource{Kind: resource.KindSlot, Name: name, Limit: 1}
	}
	members := []spec.Step{
		step("a", holds(slot("db"), slot("cache"))), step("b", holds(slot("cache"), slot("db"))), step("c"),
	}
	b := setup(t, plan(stage("s", []spec.Step{group("g", nil, members...)})))
	g := &groups{b: b, world: b.world, held: map[string]string{}, queue: map[string][]activities.SlotInput{}}
	b.RegisterActivity(g)
	doc := stageDoc(t, b)
	require.Equal(t, run.Succeeded, doc.Status)
	all := b.world.all()
	for _, node := range []string{"s/a", "s/b"} {
		require.Less(t, slices.Index(all, "ask cache for "+node), slices.Index(all, "ask db for "+node), "sorted by name")
	}
	require.ElementsMatch(t, []string{"leave db by s/a", "leave cache by s/a", "leave db by s/b", "leave cache by s/b"},
		slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, "leave ") }))
	require.Equal(t, map[string]string{"db": "", "cache": ""}, g.held)
	for _, st := range doc.Steps[:2] {
		require.Equal(t, []run.Resource{
			{Kind: "slot", Name: "cache", State: run.ResourceReleased, Attempts: 1},
			{Kind: "slot", Name: "db", State: run.ResourceReleased, Attempts: 1},
		}, st.Resources)
	}
}

func TestNamesOfResourcesAreEvaluated(t *testing.T) {
	t.Parallel()
	b := setup(t, plan(stage("s", []spec.Step{
		step("a", holds(spec.Resource{Kind: resource.KindLock, Name: "deploy-${{ pipeline.name }}"})),
	})))
	require.Equal(t, run.Succeeded, b.run(t).Status)
	in := b.world.input["s/a"]
	require.Equal(t, "deploy-demo", in.Step.Resources[0].Name)
	require.NotEmpty(t, in.Holder.RunKey)
	require.Equal(t, 2*time.Minute, in.Release)

	b = setup(t, plan(stage("s", []spec.Step{
		step("a", holds(spec.Resource{Kind: resource.KindLock, Name: "${{ pipeline.name }}"}, spec.Resource{Kind: resource.KindLock, Name: "Demo"})),
	})))
	doc := b.run(t)
	require.Equal(t, run.TriggerInvalid, doc.Cause.Trigger)
	require.Contains(t, doc.Cause.Message, "by one variable")
}

// A host that was only slow may take the finally steps of the stage that it lost.
func TestStageGivesBackWhatItsHostLost(t *testing.T) {
	t.Parallel()
	// lost is what has leaked of a stage that lost host h1 and went on at another.
	lost := func(t *testing.T, next string) (leaked []string) {
		t.Helper()
		b := setup(t, plan(stage("s", []spec.Step{step("a")}, func(s *spec.Stage) {
			s.Finally, s.FinallyTimeout = []spec.Step{step("tidy")}, time.Minute
		})))
		b.world.alive = func() bool { return false }
		b.OnActivity("RunStep", anything, stepNamed("a")).
			Return(nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil))
		b.OnActivity("RunStep", anything, anything).Return(b.world.RunStep)
		b.OnActivity("Bind", anything, anything).Return(b.world.Bind).Once()
		b.OnActivity("Bind", anything, anything).Return(&activities.Binding{Host: next, Queue: "belay-host/" + next + "/b1"}, nil)
		stageRun(t, b, b.world.plan.Stages[0])
		var failed *temporal.ApplicationError
		require.ErrorAs(t, b.GetWorkflowError(), &failed)
		var doc run.Stage
		require.NoError(t, failed.Details(&doc))
		require.Len(t, doc.Resources, 2)
		require.Len(t, doc.Steps[0].Resources, 2)
		for _, r := range slices.Concat(doc.Resources, doc.Steps[0].Resources) {
			if r.State != run.ResourceReleased {
				require.Equal(t, run.ResourceLeaked, r.State)
				leaked = append(leaked, r.Kind+" "+r.Name)
			}
		}
		return leaked
	}
	require.Empty(t, lost(t, "h1"))
	require.Equal(t, []string{"workspace h1", "process a", "temp_dir tmp"}, lost(t, "h2"))
}
