package runs

import (
	"cmp"
	"slices"
	"time"

	"belay.run/internal/resource"
	"belay.run/internal/run"
)

// Held is a resource of a run, from what the run's document and the ledger say
// of it.
type Held struct {
	Run   string `json:"run"`
	RunID string `json:"run_id"`
	Node  string `json:"node"`
	// Attempt is the attempt of the step that held it, or of the stage to take it; 0
	// where it is a workspace, or only the document tells of it.
	Attempt int               `json:"attempt,omitempty"`
	Scope   string            `json:"scope"`
	Kind    string            `json:"kind"`
	Name    string            `json:"name"`
	State   run.ResourceState `json:"state"`
	// Attempts is how often its release was tried.
	Attempts int        `json:"attempts"`
	Since    *time.Time `json:"since,omitempty"`
	ID       string     `json:"id,omitempty"`
	Host     string     `json:"host,omitempty"`
	Error    string     `json:"error,omitempty"`
}

// doubtAfter is how long after the end of a run what it has not been seen to
// give back counts as held only: the janitor is on its way.
const doubtAfter = time.Minute

// HeldBy lists what a run held and holds: the ledger and the document read as
// one. What one of the two says is released is, else what the document says has
// leaked has; so has what a run that has ended for some time has not released,
// whatever it said last.
func HeldBy(d *run.Document, entries []resource.Entry, now time.Time) []Held {
	out := make([]Held, 0, len(entries))
	known := map[[3]string]int{} // the newest attempt's place, by node, kind and name
	for i := range entries {
		e := &entries[i]
		known[[3]string{e.Node, e.Kind, e.Name}] = len(out)
		out = append(out, HeldOf(e))
	}
	add := func(scope resource.Scope, node string, list []run.Resource) {
		for i := range list {
			r := &list[i]
			if at, ok := known[[3]string{node, r.Kind, r.Name}]; ok {
				switch {
				case r.State == run.ResourceReleased:
					out[at].State, out[at].Error = r.State, ""
				case r.State == run.ResourceLeaked && out[at].State != run.ResourceReleased:
					out[at].State = r.State
				}
				continue
			}
			out = append(out, Held{
				Run: d.ID, RunID: d.RunID, Node: node, Scope: string(scope), Kind: r.Kind, Name: r.Name,
				State: r.State, Attempts: r.Attempts, Error: r.Error,
			})
		}
	}
	add(resource.ScopePipeline, "", d.Resources)
	for i := range d.Stages {
		s := &d.Stages[i]
		add(resource.ScopeStage, s.Node, s.Resources)
		for j := range s.Steps {
			add(resource.ScopeStep, s.Steps[j].Node, s.Steps[j].Resources)
		}
	}
	if over := d.EndedAt; over != nil && d.Status.Terminal() && !anyOpen(d) && now.Sub(*over) > doubtAfter {
		for i := range out {
			if out[i].State != run.ResourceReleased {
				out[i].State = run.ResourceLeaked
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Attempt, b.Attempt))
	})
	return out
}

// HeldOf is an entry of the ledger as it is.
func HeldOf(e *resource.Entry) Held {
	since := e.Since
	return Held{
		Run: e.WorkflowID, RunID: e.RunID, Node: e.Node, Attempt: e.Attempt, Scope: string(e.Scope), Kind: e.Kind, Name: e.Name,
		State: e.State, Attempts: e.Attempts, Since: &since, ID: e.ID, Host: e.Host, Error: e.Error,
	}
}
