package activities_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/run"
)

// executions are workflows that a Temporal knows, the newest last.
type executions struct {
	workflowservice.WorkflowServiceClient

	mu      sync.Mutex
	all     []execution
	cancels []string
	// histories are those of runs, by id; read are the ids whose was asked for.
	histories map[string][]*historypb.HistoryEvent
	read      []string
}

type execution struct {
	id, runID string
	status    enumspb.WorkflowExecutionStatus
	published run.Status
	closed    time.Time
	// asked: it was asked to cancel.
	asked bool
}

// connection is the part of the client that is asked.
type connection struct {
	client.Client

	known *executions
}

// WorkflowService is the frontend.
func (c connection) WorkflowService() workflowservice.WorkflowServiceClient { return c.known }

// ListWorkflow asks it.
func (c connection) ListWorkflow(_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	return c.known.list(r.GetQuery()), nil
}

func (x *executions) info(e execution) *workflowpb.WorkflowExecutionInfo {
	info := &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: e.id, RunId: e.runID}, FirstRunId: e.runID, Status: e.status,
	}
	if !e.closed.IsZero() {
		info.CloseTime = timestamppb.New(e.closed)
	}
	return info
}

func (x *executions) DescribeWorkflowExecution(_ context.Context, r *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range slices.Backward(x.all) {
		if e.id == r.GetExecution().GetWorkflowId() && (r.GetExecution().GetRunId() == "" || r.GetExecution().GetRunId() == e.runID) {
			return &workflowservice.DescribeWorkflowExecutionResponse{
				WorkflowExecutionInfo: x.info(e), WorkflowExtendedInfo: &workflowpb.WorkflowExecutionExtendedInfo{CancelRequested: e.asked},
			}, nil
		}
	}
	return nil, serviceerror.NewNotFound("no such workflow")
}

var startsWith = regexp.MustCompile(`WorkflowId STARTS_WITH '([^']*)'`)

// ListWorkflowExecutions knows what is asked by prefix, by state, and by what was
// published.
func (x *executions) ListWorkflowExecutions(_ context.Context, r *workflowservice.ListWorkflowExecutionsRequest, _ ...grpc.CallOption) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	return x.list(r.GetQuery()), nil
}

func (x *executions) list(query string) *workflowservice.ListWorkflowExecutionsResponse {
	x.mu.Lock()
	defer x.mu.Unlock()
	resp := &workflowservice.ListWorkflowExecutionsResponse{}
	prefix := startsWith.FindStringSubmatch(query)
	for _, e := range x.all {
		isOpen := e.status == opened
		switch {
		case prefix != nil && !strings.HasPrefix(e.id, prefix[1]),
			prefix == nil && strings.Contains(e.id, "/"), // no pipeline
			strings.Contains(query, "ExecutionStatus = 'Running'") && !isOpen,
			strings.Contains(query, "ExecutionStatus != 'Running'") && isOpen,
			strings.Contains(query, "BelayStatus IN") && e.published.Terminal():
			continue
		}
		resp.Executions = append(resp.Executions, x.info(e))
	}
	return resp
}

// RequestCancelWorkflowExecution cancels at once.
func (x *executions) RequestCancelWorkflowExecution(_ context.Context, r *workflowservice.RequestCancelWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.RequestCancelWorkflowExecutionResponse, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.all {
		if e := &x.all[i]; e.id == r.GetWorkflowExecution().GetWorkflowId() && e.status == opened {
			x.cancels = append(x.cancels, e.id)
			e.status, e.published = canceled, run.Cancelled
		}
	}
	return &workflowservice.RequestCancelWorkflowExecutionResponse{}, nil
}

const (
	opened     = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	terminated = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	canceled   = enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED
	succeeded  = enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	failing    = enumspb.WORKFLOW_EXECUTION_STATUS_FAILED
)

// reaping is a reaper over executions and a ledger; none where without is set.
type reaping struct {
	env    *testsuite.TestActivityEnvironment
	reaper *activities.Reaper
	ledger *resource.Ledger
	known  *executions
	// overdue counts the runs that were found so.
	overdue int
}

func reap(t *testing.T, without bool, all ...execution) *reaping {
	t.Helper()
	r := &reaping{known: &executions{all: all}}
	if !without {
		rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		r.ledger = resource.NewLedger(rdb)
	}
	r.share(r.ledger)
	return r
}

// share makes the reaper anew, with a ledger that others may have too.
func (r *reaping) share(ledger *resource.Ledger) {
	r.ledger = ledger
	r.reaper = activities.NewReaper(activities.ReaperConfig{
		Client: connection{known: r.known}, Namespace: "default", Ledger: ledger, Overdue: func() { r.overdue++ },
	})
	var suite testsuite.WorkflowTestSuite
	r.env = suite.NewTestActivityEnvironment()
	r.env.SetTestTimeout(time.Minute)
	r.env.RegisterActivity(r.reaper)
}

// holds notes something that a run holds, in a state, after so many tries.
func (r *reaping) holds(t *testing.T, runKey string, state run.ResourceState, tries int) {
	t.Helper()
	require.NoError(t, r.ledger.Note(t.Context(), resource.Entry{
		Owner: resource.Owner{RunKey: runKey, WorkflowID: runKey, RunID: runKey, Node: "s/a", Attempt: 1}, Kind: "lock", Name: "l",
		Scope: resource.ScopeStep, State: state, Since: time.Now(), Attempts: tries,
	}))
}

func (r *reaping) find(t *testing.T, in activities.FindInput) *activities.Found {
	t.Helper()
	value, err := r.env.ExecuteActivity(r.reaper.FindClosed, in)
	require.NoError(t, err)
	var found activities.Found
	require.NoError(t, value.Get(&found))
	return &found
}

func names(found *activities.Found) []string {
	out := []string{}
	for _, o := range found.Runs {
		out = append(out, o.WorkflowID)
	}
	return out
}

func TestFindClosed(t *testing.T) {
	t.Parallel()
	all := activities.FindInput{Limit: 50}
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	reapOf := func(runKey string, status enumspb.WorkflowExecutionStatus, closed time.Time) execution {
		return execution{id: run.ReapID(runKey, ""), runID: "reap-" + runKey, status: status, published: run.Succeeded, closed: closed}
	}

	t.Run("LeavesWhatIsOpen", func(t *testing.T) {
		t.Parallel()
		r := reap(t, false,
			execution{id: "open", runID: "open", status: opened, published: run.Running},
			execution{id: "unwinding", runID: "unwinding", status: terminated, published: run.Running, closed: ago(time.Hour)},
			execution{id: "unwinding/unwinding/s", runID: "s", status: opened, published: run.Running, asked: true},
			execution{id: "just-now", runID: "just-now", status: terminated, published: run.Running, closed: ago(time.Second)},
			execution{id: "just-now/just-now/s", runID: "s", status: opened, published: run.Running},
		)
		r.holds(t, "open", run.ResourceHeld, 0)
		r.holds(t, "unwinding", run.ResourceHeld, 0)
		require.Empty(t, names(r.find(t, all)))
	})

	t.Run("FindsRunsWhoseStagesHaveNotHeard", func(t *testing.T) {
		t.Parallel()
		r := reap(t, false,
			execution{id: "cut", runID: "cut", status: terminated, published: run.Running, closed: ago(time.Hour)},
			execution{id: "cut/cut/s", runID: "s", status: opened, published: run.Running, asked: true},
			execution{id: "cut/cut/t", runID: "t", status: opened, published: run.Running},
		)
		require.Equal(t, []string{"cut"}, names(r.find(t, all)))
	})

	t.Run("FindsWhatWasTerminatedAndWhatHoldsSomething", func(t *testing.T) {
		t.Parallel()
		r := reap(t, false,
			execution{id: "cut", runID: "cut", status: terminated, published: run.Running, closed: ago(time.Minute)},
			execution{id: "holds", runID: "holds", status: canceled, published: run.Cancelled, closed: ago(time.Minute)},
			execution{id: "clean", runID: "clean", status: succeeded, published: run.Succeeded, closed: ago(time.Minute)},
		)
		r.holds(t, "holds", run.ResourceHeld, 0)
		r.holds(t, "clean", run.ResourceReleased, 1)
		require.Equal(t, []string{"holds", "cut"}, names(r.find(t, all)))
		found := r.find(t, activities.FindInput{Limit: 1})
		require.Equal(t, []string{"holds"}, names(found))
		require.True(t, found.More)
	})

	t.Run("FindsNothingTwice", func(t *testing.T) {
		t.Parallel()
		cut := execution{id: "cut", runID: "cut", status: terminated, published: run.Running, closed: ago(time.Hour)}
		r := reap(t, false, cut)
		require.Len(t, names(r.find(t, all)), 1)
		require.NoError(t, r.ledger.Confirm(t.Context(), "cut", run.Cancelled))
		require.Empty(t, names(r.find(t, all)))

		// Without a ledger the release itself is what tells.
		r = reap(t, true, cut, reapOf("cut", opened, time.Time{}))
		require.Empty(t, names(r.find(t, all)), "it is being released")
		r = reap(t, true, cut, reapOf("cut", succeeded, ago(time.Minute)))
		require.Empty(t, names(r.find(t, all)))
		r = reap(t, true, cut, reapOf("cut", failing, ago(time.Minute)))
		require.Len(t, names(r.find(t, all)), 1, "its release failed, and is tried again")
		r = reap(t, true, cut, reapOf("cut", succeeded, ago(2*time.Hour)))
		require.Len(t, names(r.find(t, all)), 1, "that was before it closed, as with a run that was reset")
	})

	t.Run("WaitsLongerTheOftenerItWasTried", func(t *testing.T) {
		t.Parallel()
		ended := execution{id: "a", runID: "a", status: canceled, published: run.Cancelled, closed: ago(time.Hour)}
		for _, tc := range []struct {
			tries int
			last  time.Duration
			due   bool
		}{{6, 10 * time.Second, false}, {6, 20 * time.Second, true}, {8, 50 * time.Second, false}, {8, 70 * time.Second, true}, {90, 11 * time.Minute, true}} {
			r := reap(t, false, ended, reapOf("a", failing, ago(tc.last)))
			r.holds(t, "a", run.ResourceLeaked, tc.tries)
			require.Equal(t, tc.due, len(r.find(t, all).Runs) == 1, "%+v", tc)
			require.Len(t, r.find(t, activities.FindInput{Limit: 50, Eager: true}).Runs, 1)
		}
	})
}

func TestAwaitClosed(t *testing.T) {
	t.Parallel()
	await := func(t *testing.T, r *reaping, node string) *activities.Closed {
		t.Helper()
		owner := activities.Owner{RunKey: "a", Node: node, WorkflowID: "a", RunID: "a"}
		if node != "" {
			owner.WorkflowID = "a/a/" + node
		}
		value, err := r.env.ExecuteActivity(r.reaper.AwaitClosed, activities.ReapInput{Owner: owner})
		require.NoError(t, err)
		var closed activities.Closed
		require.NoError(t, value.Get(&closed))
		return &closed
	}
	cut := execution{id: "a", runID: "a", status: terminated, published: run.Running}
	stage := execution{id: "a/a/s", runID: "s", status: opened, published: run.Running}

	t.Run("SaysThatARunIsOpenAndAsksNobody", func(t *testing.T) {
		t.Parallel()
		r := reap(t, true, execution{id: "a", runID: "a", status: opened, published: run.Running}, stage)
		require.True(t, await(t, r, "").Open)
		require.True(t, await(t, r, "s").Open)
		require.Empty(t, r.known.cancels)
	})

	t.Run("AsksStagesThatHaveNotHeard", func(t *testing.T) {
		t.Parallel()
		r := reap(t, true, cut, stage)
		require.Equal(t, &activities.Closed{Status: run.Cancelled}, await(t, r, ""))
		require.Equal(t, []string{"a/a/s"}, r.known.cancels)
	})

	t.Run("OfAStageAloneWhereverItsRunIs", func(t *testing.T) {
		t.Parallel()
		r := reap(t, true, execution{id: "a", runID: "a", status: opened}, execution{id: "a/a/s", runID: "s", status: terminated})
		require.False(t, await(t, r, "s").Open)
	})
}

func TestRemains(t *testing.T) {
	t.Parallel()
	r := reap(t, false, execution{id: "a", runID: "a", status: canceled, published: run.Cancelled})
	note := func(node, name string, state run.ResourceState, script string) {
		t.Helper()
		require.NoError(t, r.ledger.Note(t.Context(), resource.Entry{
			Owner: resource.Owner{RunKey: "a", WorkflowID: "a", RunID: "a", Node: node, Tenant: "acme", Pipeline: "demo"},
			Kind:  "custom", Name: name, Scope: resource.ScopeStep, State: state, Since: time.Now(), Release: &resource.Command{Script: script},
		}))
	}
	note("s/a", "gone", run.ResourceReleased, "x")
	note("s/a", "held", run.ResourceHeld, "x")
	note("t/a", "other", run.ResourceLeaked, "x")
	remains := func(node string) *activities.Remains {
		t.Helper()
		value, err := r.env.ExecuteActivity(r.reaper.Remains, activities.ReapInput{
			Owner: activities.Owner{RunKey: "a", Node: node, WorkflowID: "no-such", RunID: "x"},
		})
		require.NoError(t, err)
		var out activities.Remains
		require.NoError(t, value.Get(&out))
		return &out
	}
	require.Len(t, remains("s").Entries, 1)
	require.Equal(t, "acme", remains("s").Tenant)

	// A host that has booted since is found under its queue of now.
	require.NoError(t, r.ledger.Note(t.Context(), resource.Entry{
		Owner: resource.Owner{RunKey: "a", WorkflowID: "a", RunID: "a", Node: "u/a"}, Kind: "port", Name: "web",
		Scope: resource.ScopeStep, State: run.ResourceHeld, Since: time.Now(), Host: "h1", Queue: "belay-host/h1/old",
	}))
	require.Equal(t, "belay-host/h1/old", remains("u").Entries[0].Queue)
	require.NoError(t, r.ledger.Announce(t.Context(), "h1", "belay-host/h1/new"))
	require.Equal(t, "belay-host/h1/new", remains("u").Entries[0].Queue)

	// Scripts that are large together do not come in one answer.
	for _, name := range []string{"l1", "l2", "l3"} {
		note("s/a", name, run.ResourceHeld, strings.Repeat("x", 200<<10))
	}
	got := remains("s")
	require.True(t, got.More)
	require.NotEmpty(t, got.Entries)
	require.Less(t, len(got.Entries), 4)
}
