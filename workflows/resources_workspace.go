package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/run"
)

// hasWorkspace notes that a host has taken the stage.
func (s *stage) hasWorkspace() {
	s.queues[s.host.Host] = s.host.Queue
	s.doc.Resources = append(s.doc.Resources, run.Resource{
		Kind: resource.KindWorkspace, Name: s.host.Host, State: run.ResourceHeld,
	})
}

// lostWorkspace notes that the host of the stage is lost.
func (s *stage) lostWorkspace() {
	s.gaveWorkspace(fmt.Sprintf("host %s does not answer: it gives it back when it returns", s.host.Host))
}

// gaveWorkspace notes what became of the workspace on a host, and with it of what
// steps left there: processes are ended, and directories removed, before it goes.
// A stage that began again on the same host gives back what it lost there, too:
// what was lost with a workspace says why in the same words, which name the host.
func (s *stage) gaveWorkspace(why string) {
	state := run.ResourceReleased
	if why != "" {
		state = run.ResourceLeaked
	}
	back := map[string]bool{}
	for _, r := range s.doc.Resources {
		if why == "" && r.State == run.ResourceLeaked && r.Kind == resource.KindWorkspace && r.Name == s.host.Host {
			back[r.Error] = true
		}
	}
	settle := func(r *run.Resource) {
		lost := r.State == run.ResourceLeaked && back[r.Error]
		if r.State == run.ResourceHeld || r.State == run.ResourceReleasing || lost {
			r.State, r.Error, r.Attempts = state, why, r.Attempts+1
		}
	}
	for i := range s.doc.Resources {
		if r := &s.doc.Resources[i]; ofWorkspace(r) {
			settle(r)
		}
	}
	for i := range s.doc.Steps {
		for j := range s.doc.Steps[i].Resources {
			if r := &s.doc.Steps[i].Resources[j]; r.Kind == resource.KindProcess || r.Kind == resource.KindTempDir {
				settle(r)
			}
		}
	}
}

// ofWorkspace reports whether a stage has something with its workspace, and not as its
// file says.
func ofWorkspace(r *run.Resource) bool {
	return r.Kind == resource.KindWorkspace || r.Kind == resource.KindContainer
}

// markWorkspaces writes into the ledger which hosts still have a workspace of the
// stage, so that it is known when they have given it back after the stage has
// ended.
func (s *stage) markWorkspaces(ctx workflow.Context) {
	var in activities.MarkInput
	for _, r := range s.doc.Resources {
		if r.Kind == resource.KindWorkspace && r.State == run.ResourceLeaked {
			in.Entries = append(in.Entries, workspaceEntry(s.holder(), s.doc.Node,
				activities.Binding{Host: r.Name, Queue: s.queues[r.Name]}, r.Error, r.Attempts))
		}
	}
	if len(in.Entries) == 0 || !marksWorkspaces(ctx) {
		return
	}
	if err := markLeaked(ctx, in); err != nil {
		s.doc.Notes = append(s.doc.Notes, fmt.Sprintf("that a workspace is left could not be written down: %v", err))
	}
}

// marksWorkspaces tells runs that began before workspaces stood in the ledger.
func marksWorkspaces(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, "mark-workspaces", workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// workspaceEntry is a workspace, of a stage that has ended or is about to, which
// only its host can give back.
func workspaceEntry(of resource.Owner, node string, at activities.Binding, why string, tries int) resource.Entry {
	of.Node = node
	return resource.Entry{
		Owner: of, Kind: resource.KindWorkspace, Name: at.Host, Scope: resource.ScopeStage, State: run.ResourceLeaked,
		Host: at.Host, Queue: at.Queue, Error: why, Attempts: tries,
	}
}

// markLeaked has written down what nobody could be asked to release.
func markLeaked(ctx workflow.Context, in activities.MarkInput) error {
	var reaper *activities.Reaper
	opts := controlOptions()
	opts.Summary = "writes down what is leaked"
	opts.RetryPolicy.MaximumAttempts = 5
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), reaper.MarkLeaked, in).Get(ctx, nil)
}
