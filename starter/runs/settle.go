package runs

import (
	"context"
	"slices"
	"time"

	"belay.run/internal/resource"
	"belay.run/internal/run"
)

// ledgerPatience is how long the ledger has to answer.
const ledgerPatience = 2 * time.Second

// settle brings a document up to date that says that something has leaked. It only
// adorns: without the ledger's answer the document stands as the run left it.
func (c *Client) settle(ctx context.Context, d *run.Document) {
	if c.ledger == nil || !anyLeaked(d) {
		return
	}
	ledger, err := c.ledger()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerPatience)
	defer cancel()
	// What could be read is true, whatever could not.
	entries, _ := ledger.Of(ctx, d.RunKey)
	Settle(d, entries)
}

func leaked(r run.Resource) bool { return r.State == run.ResourceLeaked }

func anyLeaked(d *run.Document) bool {
	return slices.ContainsFunc(d.Resources, leaked) || slices.ContainsFunc(d.Stages, func(s run.Stage) bool {
		return slices.ContainsFunc(s.Resources, leaked) ||
			slices.ContainsFunc(s.Steps, func(p run.Step) bool { return slices.ContainsFunc(p.Resources, leaked) })
	})
}

// Settle writes into the document of a run what the ledger says was released after
// the run had said that it has leaked.
func Settle(d *run.Document, entries []resource.Entry) {
	if len(entries) == 0 {
		return
	}
	settleNode("", d.Resources, entries)
	for i := range d.Stages {
		s := &d.Stages[i]
		given := settleNode(s.Node, s.Resources, entries)
		if given {
			settleWith(s.Resources, func(r *run.Resource) bool { return r.Kind == resource.KindContainer })
		}
		for j := range s.Steps {
			settleNode(s.Steps[j].Node, s.Steps[j].Resources, entries)
			if given {
				settleWith(s.Steps[j].Resources, ownOfStep)
			}
		}
	}
}

// settleWith counts as released what a host had in the workspaces that it has given
// back: the services of the stage, and what every step has.
func settleWith(list []run.Resource, goes func(*run.Resource) bool) {
	for i := range list {
		if r := &list[i]; leaked(*r) && goes(r) {
			r.State, r.Error = run.ResourceReleased, ""
		}
	}
}

// ownOfStep reports whether every step has such a thing without asking.
func ownOfStep(r *run.Resource) bool {
	return r.Kind == resource.KindProcess || (r.Kind == resource.KindTempDir && r.Name == "tmp")
}

// settleNode does so for one node. It reports whether a workspace was among what
// is released, and none is left.
func settleNode(node string, list []run.Resource, entries []resource.Entry) (given bool) {
	left := false
	for i := range list {
		r := &list[i]
		if !leaked(*r) {
			continue
		}
		tries, over := released(node, r, entries)
		if over {
			r.State, r.Error, r.Attempts = run.ResourceReleased, "", max(r.Attempts, tries)
		}
		if r.Kind == resource.KindWorkspace {
			given, left = given || over, left || !over
		}
	}
	return given && !left
}

// released reports whether the ledger has a resource, of whatever attempts, and
// all of it as released.
func released(node string, r *run.Resource, entries []resource.Entry) (tries int, over bool) {
	for i := range entries {
		e := &entries[i]
		if e.Node != node || e.Kind != r.Kind || e.Name != r.Name {
			continue
		}
		if e.Open() {
			return 0, false
		}
		tries, over = max(tries, e.Attempts), true
	}
	return tries, over
}
