package workflows

import (
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// releaseWaits are the waits before each try to release something, the first of
// which is due at once where none was made yet. After the last try it has leaked,
// and is the janitor's.
func releaseWaits(tried bool) []time.Duration {
	waits := []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}
	if tried {
		return waits[1:]
	}
	return waits
}

// place is where something can be released: by the host that has it, where that
// is set and lives, else by any of its label.
type place struct {
	queue, label string
	// gone: the host does not answer.
	gone bool
	// end is when no time is left; zero in runs that began before it was heeded.
	end time.Time
}

// tryRelease tries once, wherever that can be done.
func (p *place) tryRelease(ctx workflow.Context, in activities.ReleaseInput, within time.Duration) (*activities.ReleaseResult, error) {
	var resources *activities.Resources
	var res activities.ReleaseResult
	if p.queue != "" && !p.gone {
		opts := workflow.WithActivityOptions(ctx, p.givingOptions(ctx, p.queue, within))
		err := workflow.ExecuteActivity(opts, resources.ReleaseResources, in).Get(ctx, &res)
		if _, late := notTaken(err); !late {
			return &res, err
		}
		p.gone = true
	}
	queue := run.QueueLight
	if p.label != "" {
		queue = run.StepsQueue(p.label)
	}
	opts := workflow.WithActivityOptions(ctx, p.givingOptions(ctx, queue, within))
	err := workflow.ExecuteActivity(opts, resources.ReleaseResources, in).Get(ctx, &res)
	return &res, err
}

// givingOptions are for giving resources back, once each, in the time that is left.
func (p *place) givingOptions(ctx workflow.Context, queue string, within time.Duration) workflow.ActivityOptions {
	o := workflow.ActivityOptions{
		TaskQueue:              queue,
		ScheduleToStartTimeout: hostPickup,
		StartToCloseTimeout:    max(within, activities.ReleaseTry),
		HeartbeatTimeout:       heartbeatMargin,
		Summary:                "gives resources back",
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, MaximumAttempts: 2},
	}
	if !p.end.IsZero() {
		o.ScheduleToCloseTimeout = max(p.end.Sub(workflow.Now(ctx)), lastTry)
		o.ScheduleToStartTimeout = min(o.ScheduleToStartTimeout, o.ScheduleToCloseTimeout)
	}
	return o
}

// lastTry is what a try has that begins when the time is nearly over.
const lastTry = 3 * time.Second

// releaseUntil tries to release until all of it is, or the waits are over, or
// within is. Shown is told of the entries after each try, and in the end of what is
// left, which has leaked; an error says that nobody could be asked.
func (p *place) releaseUntil(ctx workflow.Context, in activities.ReleaseInput, within time.Duration,
	shown func([]resource.Entry),
) error {
	end := workflow.Now(ctx).Add(within)
	waits := releaseWaits(len(in.Entries) > 0)
	next := func(i int) time.Duration { return waits[i] }
	if workflow.GetVersion(ctx, "release-within", workflow.DefaultVersion, 1) != workflow.DefaultVersion {
		p.end = end
		next = func(i int) time.Duration { return waits[min(i+1, len(waits)-1)] }
	}
	var failed error
	for i, wait := range waits {
		if wait > 0 {
			if err := workflow.Sleep(ctx, wait); err != nil {
				return err
			}
		}
		in.Last = i == len(waits)-1 || workflow.Now(ctx).Add(next(i)).After(end)
		res, err := p.tryRelease(ctx, in, within)
		if failed = err; err == nil {
			in.Entries = res.Entries
			shown(res.Entries)
			if len(res.Left()) == 0 {
				return nil
			}
			if p.gone && !in.Last && onlyThere(res.Left()) {
				in.Last = true
				if res, err = p.tryRelease(ctx, in, within); err == nil {
					in.Entries = res.Entries
				}
			}
		}
		if in.Last {
			break
		}
	}
	left := (&activities.ReleaseResult{Entries: in.Entries}).Left()
	for i := range left {
		left[i].State = run.ResourceLeaked
		if left[i].Error == "" && failed != nil {
			left[i].Error = plainly(failed)
		}
	}
	shown(left)
	return failed
}

// plainly says in words for people why an activity that was to give something back
// did not.
func plainly(err error) string {
	timeout, ok := errors.AsType[*temporal.TimeoutError](err)
	if !ok {
		if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
			return app.Message()
		}
		return err.Error()
	}
	switch timeout.TimeoutType() {
	case enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START:
		return "no live worker took it in time"
	case enumspb.TIMEOUT_TYPE_HEARTBEAT:
		return "the worker that was at it fell silent"
	case enumspb.TIMEOUT_TYPE_START_TO_CLOSE, enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, enumspb.TIMEOUT_TYPE_UNSPECIFIED:
	}
	return "it was not done when the release_timeout was over"
}

// onlyThere reports whether entries can be released by their own host alone.
func onlyThere(entries []resource.Entry) bool {
	return !slices.ContainsFunc(entries, func(e resource.Entry) bool { return e.Queue == "" })
}

// giveBack releases what the attempts of a step could not, in the background and
// in time of its own: what an attempt reported, or, where its worker was lost, what
// anybody knows of it.
func (s *stage) giveBack(ctx workflow.Context, st *spec.Step, doc *run.Step, out *outcome) {
	res := &out.result
	doc.Resources = append(doc.Resources, res.Resources...)
	own := s.holds[st.Name]
	delete(s.holds, st.Name)
	defer s.leaveSlots(ctx, doc, own.slots)
	if !own.asked {
		return
	}
	reported := out.status.OK() || !res.EndedAt.IsZero()
	if !reported && out.status != run.Cancelled {
		doc.Resources = append(doc.Resources,
			run.Resource{Kind: resource.KindProcess, Name: st.Name, State: run.ResourceHeld},
			run.Resource{Kind: resource.KindTempDir, Name: "tmp", State: run.ResourceHeld})
	}
	st = own.of(st)
	if !holdsInAttempt(st) || (reported && len(res.Unreleased) == 0) {
		return
	}
	in := activities.ReleaseInput{
		RunKey: s.in.RunKey, Node: doc.Node, Entries: res.Unreleased, Declared: s.mayHold(st, doc.Node, max(res.Attempt, 1)),
	}
	at := &place{queue: s.host.Queue, label: s.label, gone: s.hostLost}
	d, _ := workflow.NewDisconnectedContext(ctx)
	s.releasing++
	workflow.Go(d, func(d workflow.Context) {
		defer func() { s.releasing-- }()
		err := at.releaseUntil(d, in, s.in.ReleaseTimeout, func(entries []resource.Entry) { showIn(&doc.Resources, entries) })
		if err != nil {
			s.doc.Notes = append(s.doc.Notes, fmt.Sprintf("%s: nobody could be asked to give back what it held: %s", doc.Node, plainly(err)))
		}
	})
}

// holds are what a step holds: its resources with their names evaluated, and its
// slots.
type holds struct {
	resources []spec.Resource
	slots     []*slot
	// asked: the host was asked for an attempt, which may hold something.
	asked bool
}

// of is the step with the names of its resources evaluated.
func (h holds) of(st *spec.Step) *spec.Step {
	out := *st
	out.Resources = h.resources
	return &out
}

// holdsInAttempt reports whether attempts of a step acquire something.
func holdsInAttempt(st *spec.Step) bool {
	return st.Container != nil || st.Holds(resource.KindLock, resource.KindPort, resource.KindTempDir, resource.KindCustom, resource.KindCredential)
}

// mayHold is what an attempt may have acquired of which nobody knows: its host is
// gone, and there is no ledger.
func (s *stage) mayHold(st *spec.Step, node string, attempt int) []resource.Entry {
	var out []resource.Entry
	for i := range st.Resources {
		r := &st.Resources[i]
		if r.Kind != resource.KindCustom && r.Kind != resource.KindCredential {
			continue
		}
		e := resource.Entry{
			Owner: s.holder(), Kind: r.Kind, Name: r.Name, Scope: resource.ScopeStep, State: run.ResourceAcquiring,
			Provider: r.Provider, Host: s.host.Host, Label: s.label,
		}
		e.Node, e.Attempt = node, attempt
		if r.Kind == resource.KindCustom {
			e.Release = &resource.Command{Script: r.Release, Shell: st.Shell, Env: s.vars(st), Secrets: st.Secrets}
		}
		out = append(out, e)
	}
	return out
}

// holder is the stage's run as the ledger names it.
func (s *stage) holder() resource.Owner {
	return resource.Owner{
		RunKey: s.in.RunKey, WorkflowID: s.in.ID, RunID: s.in.RunID,
		Tenant: s.in.Tenant, Project: s.in.Project, Pipeline: s.in.Pipeline,
	}
}

// showIn writes what became of entries into the list of their node.
func showIn(list *[]run.Resource, entries []resource.Entry) {
	for i := range entries {
		e := &entries[i]
		at := slices.IndexFunc(*list, func(r run.Resource) bool {
			return r.Kind == e.Kind && r.Name == e.Name && r.State != run.ResourceReleased
		})
		if at < 0 {
			if known := slices.ContainsFunc(*list, func(r run.Resource) bool { return r == e.Document() }); known {
				continue
			}
			at = len(*list)
			*list = append(*list, run.Resource{})
		}
		(*list)[at] = e.Document()
	}
}
