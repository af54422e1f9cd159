package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"
)

// The peer of a cancel: processes as a careful user runs them in activities,
// with heartbeats and with cancels that are waited for.

// bareSleepers runs children, each with activities that run a process.
func bareSleepers(ctx workflow.Context, in bareInput) error {
	id := workflow.GetInfo(ctx).WorkflowExecution.ID
	futures := make([]workflow.ChildWorkflowFuture, in.Children)
	for i := range futures {
		child := workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID: fmt.Sprintf("%s-%d", id, i), WaitForCancellation: true,
			ParentClosePolicy: enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		})
		futures[i] = workflow.ExecuteChildWorkflow(child, bareSleeping, in)
	}
	for _, f := range futures {
		if err := f.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// bareSleeping runs activities at once, each with a process.
func bareSleeping(ctx workflow.Context, in bareInput) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: 10 * time.Second, WaitForCancellation: true,
	})
	futures := make([]workflow.Future, in.Count)
	for i := range futures {
		futures[i] = workflow.ExecuteActivity(ctx, in.Activity, in.Duration)
	}
	for _, f := range futures {
		if err := f.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// bareSleep runs sleep, and ends it when the activity is cancelled.
func bareSleep(ctx context.Context, duration string) error {
	const period = 200 * time.Millisecond
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				activity.RecordHeartbeat(ctx)
			}
		}
	}()
	err := exec.CommandContext(ctx, "sleep", duration).Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
