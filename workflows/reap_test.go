package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/retention"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/workflows"
)

// remains stand in for what closed runs left, and for those who give it back.
type remains struct {
	refusesToExpire bool

	found   activities.Found
	closed  map[string]activities.Closed // by run key; closed as cancelled by default
	left    map[string]activities.Remains
	refuses map[string]int // how often an entry is not released, by name
	down    error

	mu  sync.Mutex
	did []string
}

func (r *remains) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did = append(r.did, fmt.Sprintf(format, args...))
}

func (r *remains) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.did)
}

func (r *remains) FindClosed(_ context.Context, in activities.FindInput) (*activities.Found, error) {
	r.note("find %d", in.Limit)
	return &r.found, nil
}

func (r *remains) AwaitClosed(_ context.Context, in activities.ReapInput) (*activities.Closed, error) {
	if c, ok := r.closed[in.Owner.RunKey]; ok {
		return &c, nil
	}
	return &activities.Closed{Status: run.Cancelled}, nil
}

func (r *remains) Remains(_ context.Context, in activities.ReapInput) (*activities.Remains, error) {
	left := r.left[in.Owner.RunKey]
	return &left, nil
}

func (r *remains) ConfirmReaped(_ context.Context, in activities.ConfirmInput) error {
	r.note("confirm %s %s", in.RunKey, in.Status)
	return nil
}

func (r *remains) MarkLeaked(_ context.Context, in activities.MarkInput) error {
	for _, e := range in.Entries {
		r.note("mark %s %s", e.Name, e.State)
	}
	return nil
}

func (r *remains) Notify(_ context.Context, in activities.NotifyInput) error {
	names := []string{}
	for _, e := range in.Notice.Resources {
		names = append(names, e.Name)
	}
	who := "nobody"
	if in.Notify != nil {
		who = in.Notify.Webhook
	}
	r.note("tell %s: %s %s of %s", who, in.Notice.Event, strings.Join(names, " "), in.Notice.Run)
	return r.down
}

func (r *remains) Expire(context.Context) (*retention.Result, error) {
	r.note("expire")
	if r.refusesToExpire {
		return nil, errors.New("the store is away")
	}
	return &retention.Result{Logs: 3}, nil
}

func (r *remains) Release(_ context.Context, o activities.Owner) error {
	r.note("host gives back %s", o.Node)
	return nil
}

func (r *remains) ReleaseResources(ctx context.Context, in activities.ReleaseInput) (*activities.ReleaseResult, error) {
	queue := activity.GetInfo(ctx).TaskQueue
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &activities.ReleaseResult{}
	for _, e := range in.Entries {
		e.Attempts++
		e.State, e.Error = run.ResourceReleased, ""
		if r.refuses[e.Name] > 0 {
			r.refuses[e.Name]--
			e.State, e.Error = run.ResourceHeld, "it does not go"
			if in.Last {
				e.State = run.ResourceLeaked
			}
		}
		r.did = append(r.did, fmt.Sprintf("release %s on %s: %s", e.Name, queue, e.State))
		res.Entries = append(res.Entries, e)
	}
	return res, nil
}

func reaper(t *testing.T) (*testsuite.TestWorkflowEnvironment, *remains) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	r := &remains{
		closed: map[string]activities.Closed{}, left: map[string]activities.Remains{}, refuses: map[string]int{},
	}
	env.RegisterActivity(r)
	env.RegisterWorkflowWithOptions(workflows.Reap, workflow.RegisterOptions{Name: activities.ReapWorkflow})
	env.RegisterWorkflowWithOptions(workflows.Janitor, workflow.RegisterOptions{Name: activities.JanitorWorkflow})
	return env, r
}

const hostQueue = "belay-host/h1/b1"

func held(runKey, node, kind, name string, scope resource.Scope) resource.Entry {
	return resource.Entry{
		Owner: resource.Owner{RunKey: runKey, WorkflowID: "id-" + runKey, Node: node, Attempt: 1, Pipeline: "demo"},
		Kind:  kind, Name: name, Scope: scope, State: run.ResourceHeld, Since: time.Unix(1, 0),
	}
}

func onHost(e resource.Entry) resource.Entry {
	e.Host, e.Queue = "h1", hostQueue
	return e
}

func reapInput(runKey string) activities.ReapInput {
	return activities.ReapInput{Owner: activities.Owner{RunKey: runKey, WorkflowID: "id-" + runKey, RunID: runKey}}
}

// reap runs a Reap to its end and returns what it did, and whether it failed.
func reap(t *testing.T, env *testsuite.TestWorkflowEnvironment, in activities.ReapInput) (*activities.ReapResult, error) {
	t.Helper()
	env.ExecuteWorkflow(activities.ReapWorkflow, in)
	require.True(t, env.IsWorkflowCompleted())
	var res activities.ReapResult
	err := env.GetWorkflowError()
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		require.NoError(t, app.Details(&res))
		return &res, err
	}
	require.NoError(t, err)
	require.NoError(t, env.GetWorkflowResult(&res))
	return &res, nil
}

// beginning are those of lines that begin with prefix.
func beginning(lines []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasPrefix(l, prefix) })
}

func TestReap(t *testing.T) {
	t.Parallel()

	t.Run("TouchesNothingThatIsOpen", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		r.closed["k"] = activities.Closed{Open: true}
		r.left["k"] = activities.Remains{Entries: []resource.Entry{held("k", "s/a", "lock", "l", resource.ScopeStep)}}
		res, err := reap(t, env, reapInput("k"))
		require.NoError(t, err)
		require.True(t, res.Open)
		require.Empty(t, r.all())
	})

	t.Run("ReleasesStepsBeforeStagesBeforeTheRunAndConfirms", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		r.left["k"] = activities.Remains{
			Bound: []activities.BoundStage{{
				Owner:   activities.Owner{RunKey: "k", Node: "s"},
				Binding: activities.Binding{Host: "h1", Queue: hostQueue},
			}},
			Entries: []resource.Entry{
				held("k", "", "custom", "of-run", resource.ScopePipeline),
				held("k", "s", "custom", "of-stage", resource.ScopeStage),
				onHost(held("k", "s/a", "port", "of-step", resource.ScopeStep)),
			},
		}
		res, err := reap(t, env, reapInput("k"))
		require.NoError(t, err)
		require.Equal(t, []string{
			"host gives back s",
			"release of-step on " + hostQueue + ": released",
			"release of-stage on belay-steps: released",
			"release of-run on belay-steps: released",
			"confirm k cancelled",
		}, r.all())
		require.Len(t, res.Released, 3)
		require.Empty(t, res.Leaked)
	})

	t.Run("TellsOfWhatLeaksOnceAndOfItsRelease", func(t *testing.T) {
		t.Parallel()
		who := &spec.Notify{Webhook: "https://pager"}
		env, r := reaper(t)
		entry := held("k", "s/a", "lock", "l", resource.ScopeStep)
		r.refuses["l"] = 1
		r.left["k"] = activities.Remains{Entries: []resource.Entry{entry}, Notify: who, Pipeline: "demo"}
		res, err := reap(t, env, reapInput("k"))
		require.ErrorContains(t, err, "not released: lock l of s/a")
		require.Equal(t, []activities.ReapedEntry{{Node: "s/a", Kind: "lock", Name: "l", Error: "it does not go"}}, res.Leaked)
		require.Equal(t, []string{"release l on belay-light: leaked", "tell https://pager: leaked l of id-k"}, r.all())

		// Leaked as before: nobody is told again.
		env, r = reaper(t)
		entry.State = run.ResourceLeaked
		r.refuses["l"] = 1
		r.left["k"] = activities.Remains{Entries: []resource.Entry{entry}, Notify: who}
		_, err = reap(t, env, reapInput("k"))
		require.Error(t, err)
		require.Equal(t, []string{"release l on belay-light: leaked"}, r.all())

		// Released after all.
		env, r = reaper(t)
		r.left["k"] = activities.Remains{Entries: []resource.Entry{entry}, Notify: who}
		_, err = reap(t, env, reapInput("k"))
		require.NoError(t, err)
		require.Equal(t, []string{
			"release l on belay-light: released", "tell https://pager: released l of id-k", "confirm k cancelled",
		}, r.all())
	})

	t.Run("SaysThatNobodyCouldBeTold", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		r.refuses["l"], r.down = 1, errors.New("the pager is away")
		r.left["k"] = activities.Remains{Entries: []resource.Entry{held("k", "s/a", "lock", "l", resource.ScopeStep)}}
		res, err := reap(t, env, reapInput("k"))
		require.Error(t, err)
		require.Len(t, beginning(r.all(), "tell nobody"), 5)
		require.Len(t, res.Notes, 1)
		require.Equal(t, "nobody could be told of what is leaked: the pager is away", res.Notes[0])
	})

	t.Run("TriesAgainWithPausesWhereItIsEager", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		r.refuses["l"] = 5
		r.left["k"] = activities.Remains{Entries: []resource.Entry{
			held("k", "s/a", "lock", "l", resource.ScopeStep), held("k", "s/a", "custom", "c", resource.ScopeStep),
		}}
		in := reapInput("k")
		in.Eager = true
		began := env.Now()
		res, err := reap(t, env, in)
		require.NoError(t, err)
		require.Equal(t, 31*time.Second, env.Now().Sub(began).Truncate(time.Second))
		require.Len(t, beginning(r.all(), "release l"), 6)
		require.Len(t, beginning(r.all(), "release c"), 1, "what is released is not tried again")
		require.Len(t, res.Released, 2)
	})

	t.Run("ReleasesElsewhereWhatAHostThatIsGoneHad", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		custom := onHost(held("k", "s/a", "custom", "c", resource.ScopeStep))
		custom.Label = "gpu"
		lock := onHost(held("k", "s/b", "lock", "l", resource.ScopeStep))
		r.left["k"] = activities.Remains{
			Bound: []activities.BoundStage{
				{Owner: activities.Owner{RunKey: "k", Node: "s"}, Binding: activities.Binding{Host: "h1", Queue: hostQueue}},
				{Owner: activities.Owner{RunKey: "k", Node: "t"}, Binding: activities.Binding{Host: "h1", Queue: hostQueue}},
			},
			Entries: []resource.Entry{custom, lock},
		}
		env.OnActivity("Release", anything, anything).Return(notPickedUp(0)).Once()
		began := env.Now()
		res, err := reap(t, env, reapInput("k"))
		require.NoError(t, err)
		require.ElementsMatch(t, []string{
			"mark h1 leaked", "mark h1 leaked", "tell nobody: leaked h1 h1 of id-k",
			"release c on belay-steps-gpu: released", "release l on belay-light: released", "confirm k cancelled",
		}, r.all())
		require.Equal(t, []string{"host h1 does not answer: it removes what it has of s when it returns"}, res.Notes)
		require.GreaterOrEqual(t, env.Now().Sub(began), 45*time.Second, "what is exclusive waits until nothing can live there")
	})

	t.Run("WritesDownWhatAHostThatAnswersCouldNotGiveBack", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		r.left["k"] = activities.Remains{Bound: []activities.BoundStage{{
			Owner: activities.Owner{RunKey: "k", Node: "s"}, Binding: activities.Binding{Host: "h1", Queue: hostQueue},
		}}}
		env.OnActivity("Release", anything, anything).Return(temporal.NewNonRetryableApplicationError("the engine is away", "", nil))
		in := reapInput("k")
		in.Owner.Node, in.Run = "s", "id-k"
		res, err := reap(t, env, in)
		require.ErrorContains(t, err, "not released: workspace h1 of s")
		require.Equal(t, "the engine is away", res.Leaked[0].Error)
		require.Equal(t, []string{"mark h1 leaked", "tell nobody: leaked h1 of id-k"}, r.all())
	})

	t.Run("WritesDownWhatNobodyCouldBeAskedToRelease", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		r.left["k"] = activities.Remains{Entries: []resource.Entry{held("k", "s/a", "lock", "l", resource.ScopeStep)}}
		env.OnActivity("ReleaseResources", anything, anything).Return(nil, notPickedUp(0))
		res, err := reap(t, env, reapInput("k"))
		require.Error(t, err)
		require.Contains(t, res.Leaked[0].Error, "nobody could be asked")
		require.Equal(t, []string{"mark l leaked", "tell nobody: leaked l of id-k"}, r.all())
	})

	t.Run("GoesOnWhereThereIsMore", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		first := activities.Remains{Entries: []resource.Entry{held("k", "s/a", "lock", "one", resource.ScopeStep)}, More: true}
		env.OnActivity("Remains", anything, anything).Return(&first, nil).Once()
		env.OnActivity("Remains", anything, anything).Return(r.Remains)
		r.left["k"] = activities.Remains{Entries: []resource.Entry{held("k", "s/b", "lock", "two", resource.ScopeStep)}}
		res, err := reap(t, env, reapInput("k"))
		require.NoError(t, err)
		require.Len(t, res.Released, 2)
		require.Contains(t, r.all(), "confirm k cancelled")
	})

	t.Run("TellsThoseWhoAreToBeToldOfEachPart", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		leaked := held("k", "s/a", "lock", "one", resource.ScopeStep)
		leaked.State = run.ResourceLeaked
		first := activities.Remains{Entries: []resource.Entry{leaked}, More: true, Notify: &spec.Notify{Webhook: "https://pager"}}
		env.OnActivity("Remains", anything, anything).Return(&first, nil).Once()
		env.OnActivity("Remains", anything, anything).Return(
			func(_ context.Context, in activities.ReapInput) (*activities.Remains, error) {
				return &activities.Remains{Notify: in.Notify}, nil
			})
		_, err := reap(t, env, reapInput("k"))
		require.NoError(t, err)
		require.Contains(t, r.all(), "tell https://pager: released one of id-k")

		env, r = reaper(t)
		env.OnActivity("Remains", anything, anything).Return(&first, nil).Once()
		env.OnActivity("Remains", anything, anything).Return(nil, temporal.NewNonRetryableApplicationError("Redis is away", "x", nil))
		env.ExecuteWorkflow(activities.ReapWorkflow, reapInput("k"))
		require.ErrorContains(t, env.GetWorkflowError(), "Redis is away")
		require.Contains(t, r.all(), "tell https://pager: released one of id-k", "what was done before is told all the same")
		require.NotContains(t, r.all(), "confirm k cancelled")
	})

	t.Run("DoesNotConfirmWhatItGaveUpOn", func(t *testing.T) {
		t.Parallel()
		env, r := reaper(t)
		r.left["k"] = activities.Remains{Entries: []resource.Entry{held("k", "s/a", "lock", "one", resource.ScopeStep)}, More: true}
		_, err := reap(t, env, reapInput("k"))
		require.NoError(t, err)
		require.NotContains(t, r.all(), "confirm k cancelled")
	})
}
