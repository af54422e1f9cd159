package host

import (
	"fmt"

	"go.temporal.io/sdk/worker"

	"belay.run/activities"
	"belay.run/internal/executor"
	"belay.run/internal/task/types"
)

// openExecutor makes what runs light tasks.
func (w *Worker) openExecutor() error {
	e, err := executor.New(executor.Config{
		Registry: types.Builtin(types.Tools{Secrets: w.deps.secrets}), Logger: w.log.Named("light"),
	})
	if err != nil {
		return fmt.Errorf("making the executor of light tasks: %w", err)
	}
	w.deps.executor = e
	return nil
}

// newBatches makes the activities of batches.
func (w *Worker) newBatches() *activities.Batches {
	t := w.deps.temporal
	return activities.NewBatches(activities.BatchesConfig{
		Client: t.Client, Namespace: t.Namespace, Store: w.deps.store, Executor: w.deps.executor, Logger: w.log.Named("batch"),
	})
}

// batchOptions are for the queue of chunks. They have a worker of their own, so
// that no backlog of theirs stands before steps.
func (w *Worker) batchOptions() worker.Options {
	return w.activityOptions(batchActivities, batchPollers)
}
