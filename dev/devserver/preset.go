package devserver

import (
	"time"

	"go.temporal.io/server/chasm/lib/activity"
	"go.temporal.io/server/common/dynamicconfig"
)

// Preset returns the dynamic configuration of an embedded server. Temporal's
// defaults are made for clusters and cost a single process a factor of five;
// each value here has its measured reason beside it. Keys are taken from the
// server's own settings, so that one that is renamed breaks the build instead
// of being ignored.
func Preset() dynamicconfig.StaticClient {
	const pollRPS = 2000
	return dynamicconfig.StaticClient{
		// Cancels are pushed to running activities: tens of milliseconds, and
		// also when a workflow is terminated.
		dynamicconfig.WorkerCommandsEnabled.Key():             true,
		dynamicconfig.EnableCancelActivityWorkerCommand.Key(): true,

		// The guard against clocks that differ between hosts makes every
		// timer and back-off under a second take one second.
		dynamicconfig.TimerProcessorMaxTimeShift.Key(): 50 * time.Millisecond,

		// With one shard each read of a queue waits 50 ms by default.
		dynamicconfig.TransferProcessorMaxPollRPS.Key():   pollRPS,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():      pollRPS,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key(): pollRPS,
		dynamicconfig.OutboundProcessorMaxPollRPS.Key():   pollRPS,

		// A waiter that misses the event of a workflow's end sleeps this long.
		dynamicconfig.HistoryLongPollExpirationInterval.Key(): time.Second,

		// Partitions only forward to one another here, with tails of seconds.
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,

		// Tenants share queues; without this their fairness keys are ignored.
		dynamicconfig.MatchingEnableFairness.Key(): true,

		// No task is lost to the poll of a worker that stops.
		dynamicconfig.EnableCancelWorkerPollsOnShutdown.Key(): true,

		// Bounds the server's memory.
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key(): 8096,

		activity.EnableStandaloneActivityOperatorCommands.Key():                  true,
		dynamicconfig.FrontendEnableBatchOperationsForStandaloneActivities.Key(): true,
	}
}
