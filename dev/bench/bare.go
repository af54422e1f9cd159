package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// The peers of a pipeline: what the same shape costs on Temporal alone, with
// nothing of Belay in it.

const bareQueue = "bare"

// bareInput says which activity a bare workflow runs, and how often.
type bareInput struct {
	Activity string
	Count    int
	Children int
	// Duration is how long processes sleep.
	Duration string
}

// bareSequence runs activities one after another.
func bareSequence(ctx workflow.Context, in bareInput) error {
	ctx = workflow.WithActivityOptions(ctx, bareOptions())
	for range in.Count {
		if err := workflow.ExecuteActivity(ctx, in.Activity).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// bareParallel runs activities at once. A hundred, as in one stage, is also as
// many as one workflow should have in flight.
func bareParallel(ctx workflow.Context, in bareInput) error {
	ctx = workflow.WithActivityOptions(ctx, bareOptions())
	futures := make([]workflow.Future, in.Count)
	for i := range futures {
		futures[i] = workflow.ExecuteActivity(ctx, in.Activity)
	}
	for _, f := range futures {
		if err := f.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// bareParent runs bareParallel in children.
func bareParent(ctx workflow.Context, in bareInput) error {
	futures := make([]workflow.ChildWorkflowFuture, in.Children)
	for i := range futures {
		futures[i] = workflow.ExecuteChildWorkflow(ctx, bareParallel, in)
	}
	for _, f := range futures {
		if err := f.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func bareOptions() workflow.ActivityOptions {
	return workflow.ActivityOptions{StartToCloseTimeout: time.Minute}
}

// bareNoop does nothing.
func bareNoop(context.Context) error { return nil }

// bareShell runs a shell that does nothing.
func bareShell(ctx context.Context) error {
	return exec.CommandContext(ctx, "sh", "-c", ":").Run()
}

// startBareWorker serves the bare workflows with the settings that Belay's
// worker has.
func startBareWorker(c client.Client) (stop func(), err error) {
	pollers := worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{})
	w := worker.New(c, bareQueue, worker.Options{
		WorkflowTaskPollerBehavior:   pollers,
		ActivityTaskPollerBehavior:   pollers,
		StickyScheduleToStartTimeout: time.Second,
		DeadlockDetectionTimeout:     5 * time.Second,
	})
	w.RegisterWorkflow(bareSequence)
	w.RegisterWorkflow(bareParallel)
	w.RegisterWorkflow(bareParent)
	w.RegisterWorkflow(bareSleepers)
	w.RegisterWorkflow(bareSleeping)
	w.RegisterActivity(bareSleep)
	w.RegisterActivity(bareNoop)
	w.RegisterActivity(bareShell)
	if err := w.Start(); err != nil {
		return nil, fmt.Errorf("starting the peer's worker: %w", err)
	}
	return w.Stop, nil
}

// runBare runs a bare workflow to its end and returns how many milliseconds it
// took, seen by who started it.
func runBare(c client.Client, flow any, in bareInput) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		began := time.Now()
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			TaskQueue:             bareQueue,
			WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		}, flow, in)
		if err != nil {
			return 0, fmt.Errorf("starting it: %w", err)
		}
		if err := run.Get(ctx, nil); err != nil {
			return 0, err
		}
		return milliseconds(time.Since(began)), nil
	}
}

func milliseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond)
}
