// Package replay replays histories against the workflows as they are now, as a
// worker does that takes a run over.
package replay

import (
	"errors"
	"fmt"

	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/batch"
	"belay.run/workflows"
)

// Check replays the history of a pipeline, a stage, a group or a batch. It fails where the
// workflows would now do something else than they did: a worker with this code
// could not go on with that run.
func Check(history *historypb.History) error {
	if len(history.GetEvents()) == 0 {
		return errors.New("replaying: the history is empty")
	}
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableRegistrationAliasing: true})
	if err != nil {
		return fmt.Errorf("making a replayer: %w", err)
	}
	replayer.RegisterWorkflowWithOptions(workflows.Pipeline, workflow.RegisterOptions{Name: workflows.PipelineWorkflow})
	replayer.RegisterWorkflowWithOptions(workflows.Stage, workflow.RegisterOptions{Name: workflows.StageWorkflow})
	replayer.RegisterWorkflowWithOptions(workflows.Group, workflow.RegisterOptions{Name: activities.GroupWorkflow})
	replayer.RegisterWorkflowWithOptions(workflows.Reap, workflow.RegisterOptions{Name: activities.ReapWorkflow})
	replayer.RegisterWorkflowWithOptions(workflows.Janitor, workflow.RegisterOptions{Name: activities.JanitorWorkflow})
	replayer.RegisterWorkflowWithOptions(workflows.Batch, workflow.RegisterOptions{Name: batch.Workflow})
	replayer.RegisterWorkflowWithOptions(workflows.BatchPart, workflow.RegisterOptions{Name: batch.PartWorkflow})
	started := history.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
	err = replayer.ReplayWorkflowHistoryWithOptions(nil, history, worker.ReplayWorkflowHistoryOptions{
		// The ids of stages are made of those of the run.
		OriginalExecution: workflow.Execution{ID: started.GetWorkflowId(), RunID: started.GetOriginalExecutionRunId()},
	})
	if err != nil {
		return fmt.Errorf("replaying %s: %w", started.GetWorkflowId(), err)
	}
	return nil
}
