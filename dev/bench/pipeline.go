package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"

	"belay.run/dev/stack"
	"belay.run/internal/config"
	"belay.run/internal/run"
	"belay.run/workflows"
)

// openPipeline measures pipelines beside bare workflows of the same shape, on
// one server and with both workers in this process.
func openPipeline(ctx context.Context) ([]subject, func() error, error) {
	dir, err := os.MkdirTemp("", "belay-bench-")
	if err != nil {
		return nil, nil, fmt.Errorf("creating a directory for the worker's state: %w", err)
	}
	settings, err := config.Load([]string{"--state-dir", dir, "--http-address", config.HTTPOff}, noEnvironment)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	s, err := stack.Start(ctx, stack.Options{Headless: true, Worker: settings})
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	closeStack := func() error { return errors.Join(s.Stop(ctx), os.RemoveAll(dir)) }
	c := s.Temporal.Client()
	stopBare, err := startBareWorker(c)
	if err != nil {
		return nil, nil, errors.Join(err, closeStack())
	}
	return []subject{
		{
			"sequential_100", "ms", "a bare workflow with 100 no-op activities",
			runPipeline(c, sequence("uses: noop")),
			runBare(c, bareSequence, bareInput{Activity: "bareNoop", Count: 100}),
		},
		{
			"parallel_1000", "ms", "a bare parent with 10 children of 100 parallel no-op activities",
			runPipeline(c, parallel(10, 100, "uses: noop")),
			runBare(c, bareParent, bareInput{Activity: "bareNoop", Count: 100, Children: 10}),
		},
		{
			"shell_step", "ms", "a bare workflow with 100 activities that run sh -c :",
			runPipeline(c, sequence("run: ':'")),
			runBare(c, bareSequence, bareInput{Activity: "bareShell", Count: 100}),
		},
	}, func() error { stopBare(); return closeStack() }, nil
}

func noEnvironment(string) (string, bool) { return "", false }

// sequence is a pipeline of one stage with a hundred steps one after another.
func sequence(does string) string {
	var b strings.Builder
	b.WriteString("version: 1\nname: sequence\nstages:\n  - name: stage\n    steps:\n")
	for step := range 100 {
		fmt.Fprintf(&b, "      - {name: step-%d, %s}\n", step, does)
	}
	return b.String()
}

// parallel is a pipeline of stages beside one another, each with steps beside
// one another.
func parallel(stages, steps int, does string) string {
	var b strings.Builder
	b.WriteString("version: 1\nname: parallel\nstages:\n")
	for stage := range stages {
		fmt.Fprintf(&b, "  - name: stage-%d\n    steps:\n      - name: group\n        parallel:\n", stage)
		for step := range steps {
			fmt.Fprintf(&b, "          - {name: step-%d, %s}\n", step, does)
		}
	}
	return b.String()
}

// runPipeline runs a pipeline to its end and returns how many milliseconds it
// took, seen by who started it.
func runPipeline(c client.Client, file string) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		began := time.Now()
		_, err := succeed(ctx, c, file)
		return milliseconds(time.Since(began)), err
	}
}

// succeed runs a pipeline to its end, which is to be a good one.
func succeed(ctx context.Context, c client.Client, file string) (*run.Document, error) {
	started, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                  run.ID(run.DefaultTenant, run.DefaultProject, "bench", uuid.NewString()),
		TaskQueue:           run.QueueWorkflows,
		WorkflowTaskTimeout: workflows.TaskTimeout(0),
	}, workflows.PipelineWorkflow, workflows.PipelineInput{File: file})
	if err != nil {
		return nil, fmt.Errorf("starting the pipeline: %w", err)
	}
	var doc run.Document
	if err := started.Get(ctx, &doc); err != nil {
		return nil, err
	}
	if doc.Status != run.Succeeded {
		return nil, fmt.Errorf("the pipeline ended %s: %s", doc.Status, doc.Cause)
	}
	return &doc, nil
}
