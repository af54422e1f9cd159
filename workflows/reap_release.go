package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/run"
)

const (
	// lostFor is how long processes of a host that does not answer may live on:
	// its supervisors end them when they have not heard from Temporal for long
	// enough. What is exclusive goes to nobody else before.
	lostFor = 45 * time.Second
	// groupsAtOnce is of how many nodes something is released at one time.
	groupsAtOnce = 16
	// reapTries is how often one that is eager tries: after 1, 2, 4, 8 and 16
	// seconds once more.
	reapTries = 6
)

// hosts has the hosts of stages that were ended from outside give back what they
// have of them: processes and workspaces. One that does not answer does so by
// itself, when it returns.
func (r *reaping) hosts(ctx workflow.Context, bound []activities.BoundStage) {
	byQueue := map[string][]activities.BoundStage{}
	var queues []string
	for _, b := range bound {
		if byQueue[b.Binding.Queue] == nil {
			queues = append(queues, b.Binding.Queue)
		}
		byQueue[b.Binding.Queue] = append(byQueue[b.Binding.Queue], b)
	}
	inParallel(ctx, len(queues), func(ctx workflow.Context, i int) {
		for _, b := range byQueue[queues[i]] {
			why := ""
			if !r.gone[queues[i]] {
				why = r.host(ctx, &b)
			}
			if r.gone[queues[i]] {
				why = fmt.Sprintf("host %s does not answer: it gives it back when it returns", b.Binding.Host)
			} else if why != "" && workflow.GetVersion(ctx, "mark-kept-workspaces", workflow.DefaultVersion, 1) == workflow.DefaultVersion {
				why = ""
			}
			if why != "" {
				r.leftWorkspace(ctx, &b, why)
			}
		}
	})
}

// host has one host give back one stage. It says why one that answers could not.
func (r *reaping) host(ctx workflow.Context, b *activities.BoundStage) (why string) {
	var steps *activities.Steps
	opts := releaseOptions(b.Binding.Queue, hostReleaseWithin)
	opts.ScheduleToStartTimeout = hostPickup
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), steps.Release, b.Owner).Get(ctx, nil)
	if _, late := notTaken(err); late {
		r.gone[b.Binding.Queue] = true
		r.res.Notes = append(r.res.Notes, fmt.Sprintf("host %s does not answer: it removes what it has of %s when it returns",
			b.Binding.Host, b.Owner.Node))
	} else if err != nil {
		why = plainly(err)
		r.res.Notes = append(r.res.Notes, fmt.Sprintf("host %s could not give back %s: %v", b.Binding.Host, b.Owner.Node, err))
	}
	return why
}

// leftWorkspace writes down that a host still has a workspace, once: the janitor
// then goes on until it is given back.
func (r *reaping) leftWorkspace(ctx workflow.Context, b *activities.BoundStage, why string) {
	e := workspaceEntry(resource.Owner{
		RunKey: r.in.Owner.RunKey, WorkflowID: r.res.ID, RunID: r.res.RunID,
		Tenant: r.left.Tenant, Project: r.left.Project, Pipeline: r.left.Pipeline,
	}, b.Owner.Node, b.Binding, why, 1)
	known := slices.ContainsFunc(r.left.Entries, func(o resource.Entry) bool { return o.Key() == e.Key() })
	if known || !marksWorkspaces(ctx) {
		return
	}
	if err := markLeaked(ctx, activities.MarkInput{Entries: []resource.Entry{e}}); err != nil {
		r.res.Notes = append(r.res.Notes, fmt.Sprintf("that a workspace is left could not be written down: %v", err))
	}
	r.news = append(r.news, e)
	if r.in.Owner.Node != "" { // that of a whole run comes back with the ledger, where there is one
		r.res.Leaked = append(r.res.Leaked, activities.ReapedEntry{Node: e.Node, Kind: e.Kind, Name: e.Name, Host: e.Host, Error: e.Error})
	}
}

// release gives back what the ledger has: what steps hold before what their
// stages do, and that before what is the run's.
func (r *reaping) release(ctx workflow.Context, entries []resource.Entry) {
	for i := range entries {
		r.were[entries[i].Key()] = entries[i].State == run.ResourceLeaked
	}
	for _, scope := range []resource.Scope{resource.ScopeStep, resource.ScopeStage, resource.ScopePipeline} {
		groups := byHolder(entries, scope)
		inParallel(ctx, len(groups), func(ctx workflow.Context, i int) { r.group(ctx, groups[i]) })
	}
}

// byHolder are the entries of a scope, those of one attempt together: they are
// released one after the other.
func byHolder(entries []resource.Entry, scope resource.Scope) [][]resource.Entry {
	var out [][]resource.Entry
	for _, e := range entries {
		if e.Scope != scope {
			continue
		}
		i := slices.IndexFunc(out, func(g []resource.Entry) bool {
			return g[0].Node == e.Node && g[0].Attempt == e.Attempt && g[0].Host == e.Host
		})
		if i < 0 {
			i = len(out)
			out = append(out, nil)
		}
		out[i] = append(out[i], e)
	}
	return out
}

// group releases what one holder has, and tries again where it is to.
func (r *reaping) group(ctx workflow.Context, entries []resource.Entry) {
	tries := 1
	if r.in.Eager {
		tries = reapTries
	}
	wait := time.Second
	for try := 1; ; try++ {
		entries = r.try(ctx, entries, try == tries)
		if try == tries {
			r.mark(ctx, entries)
		}
		left := entries[:0]
		for i := range entries {
			if e := &entries[i]; !e.Open() || try == tries {
				r.note(e)
			} else {
				left = append(left, *e)
			}
		}
		if entries = left; len(entries) == 0 || try == tries {
			return
		}
		if err := workflow.Sleep(ctx, wait); err != nil {
			workflow.GetLogger(ctx).Warn("stopped waiting before the next try", "error", err)
		}
		wait *= 2
	}
}

// mark has written down what nobody could be asked to release: who tries and
// fails writes that down itself.
func (r *reaping) mark(ctx workflow.Context, entries []resource.Entry) {
	var in activities.MarkInput
	for i := range entries {
		if e := &entries[i]; e.Open() && e.State != run.ResourceLeaked {
			e.State = run.ResourceLeaked
			in.Entries = append(in.Entries, *e)
		}
	}
	if len(in.Entries) == 0 {
		return
	}
	if err := markLeaked(ctx, in); err != nil {
		r.res.Notes = append(r.res.Notes, fmt.Sprintf("that something is leaked could not be written down: %v", err))
	}
}

// try tries once: on the host that has the resources, else on any worker that
// can.
func (r *reaping) try(ctx workflow.Context, entries []resource.Entry, last bool) []resource.Entry {
	in := activities.ReleaseInput{Entries: entries, Last: last}
	queue, anywhere, exclusive := "", run.QueueLight, false
	for i := range entries {
		e := &entries[i]
		queue = cmp.Or(queue, e.Queue)
		// A workspace is exclusive, but goes to nobody else in any case.
		exclusive = exclusive || resource.Exclusive(e.Kind) && e.Kind != resource.KindWorkspace
		if e.Kind == resource.KindCustom { // its script may need what hosts of the label have
			anywhere = run.StepsQueue(e.Label)
		}
	}
	var res activities.ReleaseResult
	var resources *activities.Resources
	if queue != "" && !r.gone[queue] {
		opts := resourceOptions(queue, len(entries))
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), resources.ReleaseResources, in).Get(ctx, &res)
		if _, late := notTaken(err); !late {
			return outcomes(entries, &res, err)
		}
		r.gone[queue] = true
	}
	if queue != "" && exclusive {
		if wait := r.began.Add(lostFor).Sub(workflow.Now(ctx)); wait > 0 {
			if err := workflow.Sleep(ctx, wait); err != nil {
				return outcomes(entries, &res, err)
			}
		}
	}
	opts := resourceOptions(anywhere, len(entries))
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), resources.ReleaseResources, in).Get(ctx, &res)
	if _, late := notTaken(err); late {
		err = fmt.Errorf("no live worker takes it from %s", anywhere)
	}
	return outcomes(entries, &res, err)
}

// outcomes are entries after a try. Where nobody could say what became of them,
// they are as before.
func outcomes(before []resource.Entry, res *activities.ReleaseResult, err error) []resource.Entry {
	if err == nil {
		return res.Entries
	}
	out := slices.Clone(before)
	for i := range out {
		out[i].Attempts++
		out[i].Error = "nobody could be asked: " + err.Error()
	}
	return out
}

// inParallel calls do for each of n things, some at a time, and waits for all.
func inParallel(ctx workflow.Context, n int, do func(workflow.Context, int)) {
	wg, lanes := workflow.NewWaitGroup(ctx), workflow.NewSemaphore(ctx, groupsAtOnce)
	for i := range n {
		wg.Add(1)
		held := lanes.Acquire(ctx, 1) == nil // else all is cancelled, as do will notice
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			if held {
				defer lanes.Release(1)
			}
			do(ctx, i)
		})
	}
	wg.Wait(ctx)
}
