package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/dev/e2e"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/workflows"
)

// contention is what a contender does: it asks for a slot of a group, holds it
// for a while and gives it back, as pipelines do, at a fraction of their cost.
type contention struct {
	Group  string
	Number int
	Limit  int
	OnFull string
	// Hold is how long it holds the slot; 0 means until it is cancelled.
	Hold time.Duration
}

// contest is a group with its contenders, and what is seen of them.
type contest struct {
	t     *testing.T
	env   *e2e.Env
	group string
	queue string

	mu sync.Mutex
	// inside are the contenders that hold a slot, most how many at once.
	inside map[int]bool
	most   int
	order  []int
}

// newContest starts a worker for the contenders of a group that no other test
// uses.
func newContest(t *testing.T, env *e2e.Env) *contest {
	t.Helper()
	c := &contest{t: t, env: env, group: t.Name(), queue: uuid.NewString(), inside: map[int]bool{}}
	w := worker.New(env.Temporal.Client(), c.queue, worker.Options{DisableRegistrationAliasing: true})
	w.RegisterWorkflowWithOptions(c.contend, workflow.RegisterOptions{Name: "contend"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return c
}

// contend is the contenders' workflow.
func (c *contest) contend(ctx workflow.Context, in contention) (string, error) {
	info := workflow.GetInfo(ctx).WorkflowExecution
	request := activities.SlotInput{Tenant: "t", Project: "p", Group: in.Group, Request: activities.SlotRequest{
		Owner: activities.Owner{RunKey: info.RunID, WorkflowID: info.ID, RunID: info.RunID}, Limit: in.Limit, OnFull: in.OnFull,
	}}
	options := workflow.ActivityOptions{TaskQueue: run.QueueWorkflows, StartToCloseTimeout: 30 * time.Second}
	defer func() {
		d, _ := workflow.NewDisconnectedContext(ctx)
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(d, options), "ReleaseSlot", request).Get(d, nil)
		if err != nil {
			workflow.GetLogger(d).Error("not released", "error", err)
		}
	}()
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), "AcquireSlot", request).Get(ctx, nil)
	if err != nil {
		return "", err
	}
	inbox := workflow.GetSignalChannel(ctx, activities.SlotNewsSignal)
	var news activities.SlotNews
	for news.State != activities.SlotGranted {
		if err := workflow.Await(ctx, func() bool { return inbox.Len() > 0 }); err != nil {
			return "", err
		}
		if inbox.ReceiveAsync(&news); news.State == activities.SlotRefused {
			return news.State, nil
		}
	}
	// Replayed only where the worker lost it, which this one does not.
	if !workflow.IsReplaying(ctx) {
		c.enter(in.Number)
	}
	if in.Hold > 0 {
		err = workflow.Sleep(ctx, in.Hold)
	} else {
		err = workflow.Await(ctx, func() bool { return false })
	}
	if !workflow.IsReplaying(ctx) {
		c.leave(in.Number)
	}
	return news.State, err
}

func (c *contest) enter(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside[number] = true
	c.most = max(c.most, len(c.inside))
	c.order = append(c.order, number)
}

func (c *contest) leave(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inside, number)
}

func (c *contest) has(number int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inside[number]
}

// start starts a contender.
func (c *contest) start(in contention) client.WorkflowRun {
	c.t.Helper()
	in.Group = c.group
	if in.OnFull == "" {
		in.OnFull = spec.OnFullQueue
	}
	started, err := c.env.Temporal.Client().ExecuteWorkflow(c.t.Context(), client.StartWorkflowOptions{
		ID: fmt.Sprintf("contender/%s/%d", c.queue, in.Number), TaskQueue: c.queue, WorkflowTaskTimeout: workflows.TaskTimeout(0),
	}, "contend", in)
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		// Almost always it has ended.
		_ = c.env.Temporal.Client().TerminateWorkflow(context.WithoutCancel(c.t.Context()), started.GetID(), started.GetRunID(), "the test is over")
	})
	return started
}

// state asks the group how it stands. One that is not there, or has closed, has
// no members.
func (c *contest) state() workflows.GroupState {
	c.t.Helper()
	return groupState(c.t, c.env, "t", "p", c.group)
}

func groupState(t *testing.T, env *e2e.Env, tenant, project, name string) workflows.GroupState {
	t.Helper()
	var state workflows.GroupState
	resp, err := env.Temporal.Client().QueryWorkflowWithOptions(t.Context(), &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: run.GroupID(tenant, project, name), QueryType: workflows.GroupStateQuery,
		QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) || err == nil && resp.QueryRejected != nil {
		return state
	}
	require.NoError(t, err)
	require.NoError(t, resp.QueryResult.Get(&state))
	return state
}

// waitState waits until the group is as the condition wants it.
func (c *contest) waitState(what string, met func(workflows.GroupState) bool) workflows.GroupState {
	c.t.Helper()
	var state workflows.GroupState
	require.Eventually(c.t, func() bool {
		state = c.state()
		return met(state)
	}, e2e.Patience, 20*time.Millisecond, what)
	return state
}

// waitQueue waits until so many hold slots, and so many wait.
func (c *contest) waitQueue(holders, waiting int) workflows.GroupState {
	c.t.Helper()
	return c.waitState(fmt.Sprintf("%d holders, %d waiting", holders, waiting), func(s workflows.GroupState) bool {
		return len(s.Holders) == holders && s.Waiting == waiting
	})
}

// cancel asks a contender to cancel; one that has ended is left alone.
func (c *contest) cancel(r client.WorkflowRun) {
	c.t.Helper()
	err := c.env.Temporal.Client().CancelWorkflow(c.t.Context(), r.GetID(), r.GetRunID())
	if _, gone := errors.AsType[*serviceerror.NotFound](err); !gone {
		require.NoError(c.t, err)
	}
}

// terminate ends a contender, which then says no word of its leaving.
func (c *contest) terminate(number int, r client.WorkflowRun) {
	c.t.Helper()
	c.leave(number)
	err := c.env.Temporal.Client().TerminateWorkflow(c.t.Context(), r.GetID(), r.GetRunID(), "test")
	if _, gone := errors.AsType[*serviceerror.NotFound](err); !gone {
		require.NoError(c.t, err)
	}
	c.leave(number)
}

// closed reports whether a contender has ended.
func (c *contest) closed(r client.WorkflowRun) bool {
	c.t.Helper()
	resp, err := c.env.Temporal.Client().DescribeWorkflowExecution(c.t.Context(), r.GetID(), r.GetRunID())
	require.NoError(c.t, err)
	return resp.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
}

// waitInside waits until these contenders hold slots.
func (c *contest) waitInside(numbers ...int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		for _, n := range numbers {
			if !c.has(n) {
				return false
			}
		}
		return true
	}, e2e.Patience, 10*time.Millisecond, "contenders %v hold slots", numbers)
}

// waitClosed waits until the group has closed itself.
func (c *contest) waitClosed() {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		resp, err := c.env.Temporal.Client().DescribeWorkflowExecution(c.t.Context(), run.GroupID("t", "p", c.group), "")
		return err == nil && resp.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
	}, e2e.Patience, 50*time.Millisecond, "the group closes itself")
}
