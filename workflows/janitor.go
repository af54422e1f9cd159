package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/retention"
)

// Janitor is one pass of the janitor: it looks for closed runs that left
// something behind and has what they left released, each by a [Reap] of its own.
// What is not over when the pass is goes on.
func Janitor(ctx workflow.Context, in activities.JanitorInput) (*activities.JanitorResult, error) {
	var reaper *activities.Reaper
	var found activities.Found
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, findOptions()), reaper.FindClosed,
		activities.FindInput{Limit: maxReaped, Eager: in.Eager}).Get(ctx, &found)
	if err != nil {
		return nil, err
	}
	p := &pass{res: activities.JanitorResult{
		Runs: []activities.ReapResult{}, UnderWay: []string{}, More: found.More, Notes: found.Notes,
	}}
	for _, owner := range found.Runs {
		p.reap(ctx, owner, in.Eager)
	}
	for i := range found.Overdue {
		p.tellOverdue(ctx, &found.Overdue[i])
	}
	if in.Retention {
		p.expire(ctx)
	}
	over := func() bool { return len(p.open) == 0 && p.telling == 0 && !p.expiring }
	if _, err := workflow.AwaitWithTimeout(ctx, cmp.Or(in.Patience, janitorPatience), over); err != nil {
		return nil, err
	}
	slices.Sort(p.open)
	p.res.UnderWay = append(p.res.UnderWay, p.open...)
	workflow.SetCurrentDetails(ctx, p.summary())
	return &p.res, nil
}

// pass is the state of a pass.
type pass struct {
	res  activities.JanitorResult
	open []string // the ids of runs whose release is under way
	// telling is how many notices are under way.
	telling int
	// expiring says that what is too old is being removed.
	expiring bool
	// shown is how many resources the result names so far.
	shown int
}

// reap begins the release of what a run left, and notes what comes of it. One
// that is being released already is left alone.
func (p *pass) reap(ctx workflow.Context, owner activities.Owner, eager bool) {
	p.open = append(p.open, owner.WorkflowID)
	future := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, reapOptions(owner)), activities.ReapWorkflow,
		activities.ReapInput{Owner: owner, Eager: eager})
	workflow.Go(ctx, func(ctx workflow.Context) {
		res, err := reaped(ctx, future)
		if ctx.Err() != nil {
			return
		}
		if _, already := errors.AsType[*temporal.ChildWorkflowExecutionAlreadyStartedError](err); already {
			return // it stays among those under way
		}
		if i := slices.Index(p.open, owner.WorkflowID); i >= 0 {
			p.open = slices.Delete(p.open, i, i+1)
		}
		switch {
		case err != nil:
			p.res.Notes = append(p.res.Notes, fmt.Sprintf("%s: %v", owner.WorkflowID, err))
		case !res.Open && len(res.Released)+len(res.Leaked)+len(res.Notes) > 0:
			p.note(res)
		}
	})
}

// tellOverdue tells people of a run that should have ended long ago. The log knows
// of it already.
func (p *pass) tellOverdue(ctx workflow.Context, o *activities.Overdue) {
	p.res.Overdue = append(p.res.Overdue, o.Owner.WorkflowID)
	if o.Notify == nil {
		return
	}
	notice := activities.Notice{
		Event: activities.EventOverdue, Tenant: o.Tenant, Project: o.Project, Pipeline: o.Pipeline,
		Run: o.Owner.WorkflowID, RunID: o.Owner.RunID, RunKey: o.Owner.RunKey,
		At: workflow.Now(ctx), Deadline: &o.Deadline, Resources: []activities.NoticeResource{},
	}
	p.telling++
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { p.telling-- }()
		if note := notify(ctx, o.Notify, notice, "a run that is overdue"); note != "" {
			p.res.Notes = append(p.res.Notes, note)
		}
	})
}

// expire has removed what was kept for long enough.
func (p *pass) expire(ctx workflow.Context) {
	p.expiring = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { p.expiring = false }()
		var reaper *activities.Reaper
		var res retention.Result
		if err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, expireOptions()), reaper.Expire).Get(ctx, &res); err != nil {
			p.res.Notes = append(p.res.Notes, "not all that is too old could be removed: "+reason(err))
			return
		}
		p.res.Expired = &res
	})
}

// note counts what a release came to, and keeps what one answer has room for.
func (p *pass) note(res *activities.ReapResult) {
	p.res.Released += len(res.Released)
	p.res.Leaked += len(res.Leaked)
	cut := *res
	cut.Released, cut.Leaked = p.fit(res.Released), p.fit(res.Leaked)
	cut.Notes = res.Notes[:min(len(res.Notes), maxReapNotes)]
	p.res.Left += len(res.Released) + len(res.Leaked) - len(cut.Released) - len(cut.Leaked)
	p.res.Runs = append(p.res.Runs, cut)
}

// fit is the part of a list for which there is room.
func (p *pass) fit(list []activities.ReapedEntry) []activities.ReapedEntry {
	const textMost = 512
	room := max(maxPassEntries-p.shown, 0)
	list = slices.Clone(list[:min(len(list), room)])
	for i := range list {
		if e := &list[i]; len(e.Error) > textMost {
			e.Error = strings.ToValidUTF8(e.Error[:textMost], "") + "…"
		}
	}
	p.shown += len(list)
	return list
}

// reaped is the end of a [Reap], which tells what it did also where it failed.
func reaped(ctx workflow.Context, future workflow.ChildWorkflowFuture) (*activities.ReapResult, error) {
	var res activities.ReapResult
	err := future.Get(ctx, &res)
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok && details(app, &res) && res.RunKey != "" {
		return &res, nil
	}
	return &res, err
}

// summary is what Temporal's UI shows of the pass.
func (p *pass) summary() string {
	return fmt.Sprintf("%d released, %d leaked, %d under way", p.res.Released, p.res.Leaked, len(p.res.UnderWay))
}
