package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/run"
)

// reapWithin is how long at least a run waits for the release of what a stage
// left that was terminated.
const reapWithin = 2 * time.Minute

// remains is what a run knows of things that its stages could not give back.
type remains struct {
	// open is how many releases are under way.
	open int
	// leaked are the resources that stages said are leaked.
	leaked []resource.Entry
}

// takeUp takes up what a leg left: where somebody terminated its workflow, it
// ran no code that could have given anything back.
func (p *pipeline) takeUp(ctx workflow.Context, l *leg, err error) {
	if _, cut := errors.AsType[*temporal.TerminatedError](err); cut && l.doc.WorkflowID != "" {
		p.reapLeg(ctx, l)
		return
	}
	note := func(scope resource.Scope, node string, list []run.Resource) {
		for i := range list {
			if r := &list[i]; r.State == run.ResourceLeaked {
				p.remains.leaked = append(p.remains.leaked, resource.Entry{
					Owner: resource.Owner{RunKey: p.doc.RunKey, WorkflowID: p.doc.ID, RunID: p.doc.RunID, Node: node},
					Kind:  r.Kind, Name: r.Name, Scope: scope, State: r.State, Attempts: r.Attempts, Error: r.Error, Host: l.doc.Host,
				})
			}
		}
	}
	note(resource.ScopeStage, l.doc.Node, l.doc.Resources)
	for i := range l.steps {
		note(resource.ScopeStep, l.steps[i].Node, l.steps[i].Resources)
	}
}

// reapLeg has released what a stage left whose workflow was terminated.
func (p *pipeline) reapLeg(ctx workflow.Context, l *leg) {
	if workflow.GetVersion(ctx, "reap-terminated-stage", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
		return
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	owner := activities.Owner{RunKey: p.doc.RunKey, Node: l.doc.Node, WorkflowID: l.doc.WorkflowID, RunID: l.doc.RunID}
	future := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(d, reapOptions(owner)), activities.ReapWorkflow,
		activities.ReapInput{Owner: owner, Run: p.doc.ID, RunID: p.doc.RunID, Eager: true, Notify: p.plan.Notify})
	p.remains.open++
	workflow.Go(d, func(d workflow.Context) {
		defer func() { p.remains.open-- }()
		res, err := reaped(d, future)
		if err != nil {
			l.doc.Notes = append(l.doc.Notes, fmt.Sprintf("what it left is for the janitor: %v", err))
			return
		}
		l.doc.Notes = append(l.doc.Notes, res.Notes...)
		for _, e := range res.Leaked {
			l.doc.Resources = append(l.doc.Resources, run.Resource{Kind: e.Kind, Name: e.Name, State: run.ResourceLeaked, Error: e.Error})
		}
	})
}

// settleRemains waits until what terminated stages left is released, and tells
// people of what could not be.
func (p *pipeline) settleRemains(ctx workflow.Context) {
	d, _ := workflow.NewDisconnectedContext(ctx)
	if p.remains.open > 0 {
		within := max(p.plan.ReleaseTimeout, reapWithin)
		if _, err := workflow.AwaitWithTimeout(d, within, func() bool { return p.remains.open == 0 }); err != nil {
			workflow.GetLogger(d).Warn("stopped waiting for the release of what terminated stages left", "error", err)
		}
	}
	notice := activities.Notice{
		Tenant: p.doc.Tenant, Project: p.doc.Project, Pipeline: p.doc.Pipeline,
		Run: p.doc.ID, RunID: p.doc.RunID, RunKey: p.doc.RunKey,
	}
	if note := tell(d, p.plan.Notify, notice, activities.EventLeaked, p.remains.leaked); note != "" {
		p.doc.Notes = append(p.doc.Notes, note)
	}
}
