package host

import (
	"go.temporal.io/sdk/worker"

	"belay.run/activities"
)

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
