package host

import (
	"time"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"belay.run/internal/batch"
	"belay.run/internal/tracing"
	"belay.run/workflows"
)

const (
	// stopTimeout is how long a worker that stops waits for what it has begun.
	stopTimeout = 10 * time.Second

	// hostActivities is how many activities the host's queue hands out at once.
	// Far more than there are processes: a step that waits for a process slot
	// waits inside of its activity, where a heartbeat shows it to be alive.
	hostActivities = 2000

	// lightActivities is how many light steps run at once. They only wait for
	// others, mostly.
	lightActivities = 1000

	// batchActivities is how many chunks of batches run at once: those of a few
	// batches. Each holds its tasks and their results.
	batchActivities = 64

	// bindActivities is how many stages are taken at once, where there is room
	// for them: each takes an instant.
	bindActivities = 16

	// The most polls that are open at once.
	hostPollers     = 32
	lightPollers    = 32
	batchPollers    = 16
	bindPollers     = 2
	workflowPollers = 32
	controlPollers  = 16
)

// baseOptions are what all workers of the process have in common.
func (w *Worker) baseOptions() worker.Options {
	return worker.Options{
		Identity:                     w.identity,
		DisableRegistrationAliasing:  true,
		WorkerStopTimeout:            stopTimeout,
		MaxHeartbeatThrottleInterval: 2 * time.Second,
		OnFatalError:                 w.fail,
		Interceptors: []interceptor.WorkerInterceptor{tracing.Worker(w.cfg.Tracing,
			workflows.PipelineWorkflow, workflows.StageWorkflow, batch.Workflow, batch.PartWorkflow)},
	}
}

// workflowOptions are for workflows and the control activities beside them. A
// workflow whose worker died waits on that worker's sticky queue for the
// sticky timeout, at each level of the tree. Machines that build are slow at
// times: that is no deadlock.
func (w *Worker) workflowOptions() worker.Options {
	o := w.baseOptions()
	o.StickyScheduleToStartTimeout = time.Second
	o.DeadlockDetectionTimeout = 5 * time.Second
	o.WorkflowTaskPollerBehavior = pollers(2, 4, workflowPollers)
	o.ActivityTaskPollerBehavior = pollers(1, 2, controlPollers)
	return o
}

// activityOptions are for a queue of activities only.
func (w *Worker) activityOptions(atOnce, maxPollers int) worker.Options {
	o := w.baseOptions()
	o.DisableWorkflowWorker = true
	o.MaxConcurrentActivityExecutionSize = atOnce
	o.ActivityTaskPollerBehavior = pollers(1, 2, maxPollers)
	return o
}

// lightOptions are for light steps, which learn of a cancel well within a second
// where the server does not push it.
func (w *Worker) lightOptions() worker.Options {
	o := w.activityOptions(lightActivities, lightPollers)
	o.MaxHeartbeatThrottleInterval = lightBeat
	return o
}

// hostOptions are for the host's own queue: its activities are counted and ended
// by [Worker.Stop], since the SDK's own stop does not wait for them.
func (w *Worker) hostOptions() worker.Options {
	o := w.activityOptions(hostActivities, hostPollers)
	o.Interceptors = append(o.Interceptors, w.running)
	return o
}

// stepsOptions are for a shared queue of stages.
func (w *Worker) stepsOptions(room *stageSlots) (worker.Options, error) {
	tuner, err := room.tuner()
	if err != nil {
		return worker.Options{}, err
	}
	o := w.activityOptions(0, bindPollers)
	o.Tuner = tuner
	return o, nil
}

func pollers(least, first, most int) worker.PollerBehavior {
	return worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{
		MinimumNumberOfPollers: least, InitialNumberOfPollers: first, MaximumNumberOfPollers: most,
	})
}
