package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/dynamicconfig"

	"belay.run/dev/devserver"
	"belay.run/dev/stack"
	"belay.run/internal/config"
	"belay.run/internal/run"
	"belay.run/workflows"
)

const (
	// cancelPatience bounds one measurement: what takes longer is broken.
	cancelPatience = 5 * time.Minute
	// crowd is how many processes a worker must be able to run at once.
	crowd = 600
)

// cancelBench is what cancels are measured on: a server that pushes them to
// workers, and one that does not, each with a worker.
type cancelBench struct {
	push, plain *stack.Stack
	dirs        []string
	stopBare    func()
	serial      atomic.Int64
}

// openCancel measures from the request to cancel a run until the last of its
// processes has ended, beside a bare workflow with the same processes and
// Temporal's default throttle of heartbeats.
func openCancel(ctx context.Context) ([]subject, func() error, error) {
	b := &cancelBench{stopBare: func() {}}
	if err := b.open(ctx); err != nil {
		return nil, nil, errors.Join(err, b.close(ctx))
	}
	const bare = "a bare workflow with as many activities that run sleep and heartbeat, default throttle, no server push"
	small, large := shape{3, 20}, shape{10, 50}
	peer := func(s shape, end ending) func(context.Context) (float64, error) {
		return b.ends(b.plain, s, b.startBare, end)
	}
	ours := func(s *stack.Stack, size shape, end ending) func(context.Context) (float64, error) {
		return b.ends(s, size, b.startPipeline, end)
	}
	return []subject{
		{"cancel_3x20", "ms", bare, ours(b.push, small, cancelRun), peer(small, cancelRun)},
		{"cancel_3x20_no_push", "ms", bare, ours(b.plain, small, cancelRun), peer(small, cancelRun)},
		{"terminate_3x20", "ms", bare + ", terminated", ours(b.push, small, terminateRun), peer(small, terminateRun)},
		{"cancel_10x50", "ms", bare, ours(b.push, large, cancelRun), peer(large, cancelRun)},
	}, func() error { return b.close(ctx) }, nil
}

func (b *cancelBench) open(ctx context.Context) error {
	var err error
	if b.push, err = b.boot(ctx, devserver.Preset()); err != nil {
		return err
	}
	without := devserver.Preset()
	delete(without, dynamicconfig.WorkerCommandsEnabled.Key())
	delete(without, dynamicconfig.EnableCancelActivityWorkerCommand.Key())
	if b.plain, err = b.boot(ctx, without); err != nil {
		return err
	}
	b.stopBare, err = startBareWorker(b.plain.Temporal.Client())
	return err
}

func (b *cancelBench) boot(ctx context.Context, server dynamicconfig.StaticClient) (*stack.Stack, error) {
	dir, err := os.MkdirTemp("", "belay-bench-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory for the worker's state: %w", err)
	}
	b.dirs = append(b.dirs, dir)
	settings, err := config.Load([]string{
		"--state-dir", dir, "--http-address", config.HTTPOff, "--max-processes", strconv.Itoa(crowd),
	}, noEnvironment)
	if err != nil {
		return nil, err
	}
	return stack.Start(ctx, stack.Options{Headless: true, Worker: settings, Server: devserver.Options{Config: server}})
}

func (b *cancelBench) close(ctx context.Context) error {
	b.stopBare()
	var errs []error
	for _, s := range []*stack.Stack{b.push, b.plain} {
		if s != nil {
			errs = append(errs, s.Stop(ctx))
		}
	}
	for _, dir := range b.dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// shape is how many stages, and how many processes in each.
type shape struct{ stages, steps int }

// ending asks a run to end.
type ending func(ctx context.Context, c client.Client, id, runID string) error

func cancelRun(ctx context.Context, c client.Client, id, runID string) error {
	return c.CancelWorkflow(ctx, id, runID)
}

func terminateRun(ctx context.Context, c client.Client, id, runID string) error {
	return c.TerminateWorkflow(ctx, id, runID, "measured")
}

// starting starts a run of processes that sleep for a duration, and names its
// workflows below.
type starting func(ctx context.Context, c client.Client, s shape, duration string) (started client.WorkflowRun, below []string, err error)

// ends starts a run, waits until all its processes run, asks it to end, and
// returns how many milliseconds it took until the last process had.
func (b *cancelBench) ends(on *stack.Stack, s shape, start starting, end ending) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		ctx, cancel := context.WithTimeout(ctx, cancelPatience)
		defer cancel()
		c := on.Temporal.Client()
		duration := fmt.Sprintf("3600.%d%06d", os.Getpid(), b.serial.Add(1))
		started, below, err := start(ctx, c, s, duration)
		if err != nil {
			return 0, fmt.Errorf("starting it: %w", err)
		}
		processes, err := findSleepers(ctx, duration, s.stages*s.steps)
		if err != nil {
			return 0, err
		}
		defer processes.close()
		began := time.Now()
		if err := end(ctx, c, started.GetID(), started.GetRunID()); err != nil {
			return 0, fmt.Errorf("asking it to end: %w", err)
		}
		if err := processes.wait(ctx); err != nil {
			return 0, err
		}
		took := time.Since(began)
		return milliseconds(took), awaitClosed(ctx, c, append(below, started.GetID()))
	}
}

// awaitClosed waits until nothing of a run is left that would disturb the next.
func awaitClosed(ctx context.Context, c client.Client, ids []string) error {
	for _, id := range ids {
		for {
			d, err := c.DescribeWorkflowExecution(ctx, id, "")
			if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
				break
			}
			if err != nil {
				return fmt.Errorf("waiting for the end of %s: %w", id, err)
			}
			if d.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("waiting for the end of %s: %w", id, context.Cause(ctx))
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}

// startPipeline starts a pipeline of that shape.
func (b *cancelBench) startPipeline(ctx context.Context, c client.Client, s shape, duration string) (client.WorkflowRun, []string, error) {
	file := parallel(s.stages, s.steps, "run: exec sleep "+duration)
	started, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                  run.ID(run.DefaultTenant, run.DefaultProject, "bench", uuid.NewString()),
		TaskQueue:           run.QueueWorkflows,
		WorkflowTaskTimeout: workflows.TaskTimeout(0),
	}, workflows.PipelineWorkflow, workflows.PipelineInput{File: file})
	if err != nil {
		return nil, nil, err
	}
	var below []string
	for stage := range s.stages {
		below = append(below, run.ChildID(started.GetID(), started.GetRunID(), fmt.Sprintf("stage-%d", stage)))
	}
	return started, below, nil
}

// startBare starts a bare parent of that shape.
func (b *cancelBench) startBare(ctx context.Context, c client.Client, s shape, duration string) (client.WorkflowRun, []string, error) {
	id := "bare-" + strings.ReplaceAll(duration, ".", "-")
	started, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: bareQueue}, bareSleepers,
		bareInput{Activity: "bareSleep", Count: s.steps, Children: s.stages, Duration: duration})
	var below []string
	for child := range s.stages {
		below = append(below, fmt.Sprintf("%s-%d", id, child))
	}
	return started, below, err
}
