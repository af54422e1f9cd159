package host

import (
	"os"

	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/batch"
	"belay.run/workflows"
)

// registered are the activities of this worker. What runs on which queue is
// said here and nowhere else.
type registered struct {
	control *activities.Control
	claims  *activities.Claims
	groups  *activities.Groups
	binder  *activities.Binder
	steps   *activities.Steps
	light   *activities.Light
	// resources gives back what steps acquired, on the host or elsewhere.
	resources *activities.Resources
	reaper    *activities.Reaper
	// notifier runs processes and so is bound to a host, but to none in
	// particular.
	notifier *activities.Notifier
	batches  *activities.Batches
}

// registerWorkflows is for belay-workflows: the workflows, and what stands
// beside them.
func (a *registered) registerWorkflows(r worker.Registry) {
	r.RegisterWorkflowWithOptions(workflows.Pipeline, workflow.RegisterOptions{Name: workflows.PipelineWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Stage, workflow.RegisterOptions{Name: workflows.StageWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Group, workflow.RegisterOptions{Name: activities.GroupWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Reap, workflow.RegisterOptions{Name: activities.ReapWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Janitor, workflow.RegisterOptions{Name: activities.JanitorWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Batch, workflow.RegisterOptions{Name: batch.Workflow})
	r.RegisterWorkflowWithOptions(workflows.BatchPart, workflow.RegisterOptions{Name: batch.PartWorkflow})
	r.RegisterActivity(a.reaper)
	r.RegisterActivity(a.notifier)
	r.RegisterActivity(a.control)
	r.RegisterActivity(a.claims)
	r.RegisterActivity(a.groups)
	// The account of chunks is made here, also while no worker takes any.
	r.RegisterActivity(a.batches)
	// Steps that do nothing but pass control run beside the workflows.
	r.RegisterActivity(a.light)
}

// registerSteps is for the shared queues of the host's labels: taking a stage.
func (a *registered) registerSteps(r worker.Registry) {
	r.RegisterActivity(a.binder)
	r.RegisterActivity(a.resources)
}

// registerHost is for the host's own queue: what needs a stage's workspace.
func (a *registered) registerHost(r worker.Registry) {
	r.RegisterActivity(a.steps)
	r.RegisterActivity(a.resources)
	// Built-in steps that the router sends here.
	r.RegisterActivity(a.light)
}

// registerLight is for belay-light: steps that need neither process nor folder.
func (a *registered) registerLight(r worker.Registry) {
	r.RegisterActivity(a.light)
	r.RegisterActivity(a.resources)
}

// registerBatch is for belay-batch: the chunks of batches.
func (a *registered) registerBatch(r worker.Registry) { r.RegisterActivity(a.batches) }

// newActivities makes the activities from what the worker has connected.
func (w *Worker) newActivities() *registered {
	t := w.deps.temporal
	environ := w.cfg.Settings.StepEnviron(os.Environ())
	return &registered{
		reaper: activities.NewReaper(activities.ReaperConfig{
			Client: t.Client, Namespace: t.Namespace, Ledger: w.deps.ledger, Logger: w.log.Named("reap"), Overdue: w.metrics.Overdue,
			Expire: w.deps.retention.Sweep,
		}),
		notifier:  w.newNotifier(environ),
		batches:   w.newBatches(),
		control:   activities.NewControl(t.Client, t.Namespace, w.deps.router, w.cfg.Settings.TenantRuns, w.deps.cancels),
		claims:    w.deps.claims,
		groups:    activities.NewGroups(t.Client, t.Namespace),
		binder:    activities.NewBinder(w.host, w.metrics),
		light:     w.newLight(),
		resources: w.deps.resources,
		steps: activities.NewSteps(activities.StepsConfig{
			Client:       t.Client,
			Namespace:    t.Namespace,
			Host:         w.host,
			Proc:         w.deps.processes,
			Logs:         w.deps.logs,
			Store:        w.deps.store,
			Secrets:      w.deps.secrets,
			Claims:       w.deps.claims,
			Resources:    w.deps.resources,
			Containers:   w.deps.containers,
			MaxProcesses: w.cfg.Settings.MaxProcesses,
			TenantSteps:  w.cfg.Settings.TenantSteps,
			Environment:  environ,
			Meter:        w.metrics,
			Logger:       w.log,
		}),
	}
}
