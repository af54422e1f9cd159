package host

import (
	"context"
	"fmt"
	"sync"

	"go.temporal.io/sdk/worker"

	"belay.run/activities"
	"belay.run/internal/cancels"
	"belay.run/internal/run"
)

// queues are the workers of the process, by what is stopped together.
type queues struct {
	// steps are the shared queues on which hosts take stages.
	steps group
	// rest are the others: the host's own, light steps, batches, workflows.
	rest group
}

// group is a set of workers that are stopped together, once.
type group struct {
	workers []worker.Worker
	once    sync.Once
}

// stop stops all workers of the group at once and waits for them.
func (g *group) stop() {
	g.once.Do(func() {
		var wg sync.WaitGroup
		for _, w := range g.workers {
			wg.Go(w.Stop)
		}
		wg.Wait()
	})
}

// openQueues makes and starts the workers. The host's own queue comes before
// the shared ones, so that a stage that is taken is served at once.
func (w *Worker) openQueues() error {
	acts := w.newActivities()
	w.onStop(background(func(ctx context.Context) {
		w.deps.cancels.Listen(ctx, func(c cancels.Cancel) { activities.EndRun(acts.steps, c) })
	}))
	open := func(g *group, queue string, o worker.Options, register func(worker.Registry)) error {
		sdk := worker.New(w.deps.temporal.Client, queue, o)
		register(sdk)
		if err := sdk.Start(); err != nil {
			return fmt.Errorf("starting the worker of queue %s: %w", queue, err)
		}
		g.workers = append(g.workers, sdk)
		return nil
	}
	rest := []struct {
		queue    string
		options  worker.Options
		register func(worker.Registry)
	}{
		{w.host.Queue(), w.hostOptions(), acts.registerHost},
		{run.QueueWorkflows, w.workflowOptions(), acts.registerWorkflows},
		{run.QueueLight, w.lightOptions(), acts.registerLight},
		{run.QueueBatch, w.batchOptions(), acts.registerBatch},
	}
	for _, q := range rest {
		if err := open(&w.queues.rest, q.queue, q.options, q.register); err != nil {
			return err
		}
	}
	options, err := w.stepsOptions(&stageSlots{host: w.host, most: w.cfg.Settings.MaxStages})
	if err != nil {
		return err
	}
	labels := w.cfg.Settings.Labels
	if !w.cfg.Settings.OnlyLabels {
		labels = append([]string{""}, labels...)
	}
	for _, label := range labels {
		if err := open(&w.queues.steps, run.StepsQueue(label), options, acts.registerSteps); err != nil {
			return err
		}
	}
	return nil
}
