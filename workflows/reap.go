package workflows

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// reaping is the release of what one closed run, or one closed stage, left.
type reaping struct {
	in    activities.ReapInput
	began time.Time
	res   activities.ReapResult
	left  activities.Remains
	// gone are the hosts' queues that nobody takes anything from.
	gone map[string]bool
	// were are the entries that were known to be leaked before, by key; news
	// what has become of entries, in order.
	were map[string]bool
	news []resource.Entry
}

// Reap releases what a closed run left behind, or a single stage whose workflow
// was terminated. Of what is open it touches nothing, and it waits for stages
// that still end by themselves. It fails, with what it did in the details, where
// something could not be released: the janitor tries again later.
func Reap(ctx workflow.Context, in activities.ReapInput) (*activities.ReapResult, error) {
	r := &reaping{
		in: in, began: workflow.Now(ctx), gone: map[string]bool{}, were: map[string]bool{},
		res: activities.ReapResult{
			RunKey: in.Owner.RunKey, ID: cmp.Or(in.Run, in.Owner.WorkflowID), RunID: cmp.Or(in.RunID, in.Owner.RunID), Node: in.Owner.Node,
			Released: []activities.ReapedEntry{}, Leaked: []activities.ReapedEntry{},
		},
	}
	var reaper *activities.Reaper
	var closed activities.Closed
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, unwindOptions()), reaper.AwaitClosed, in).Get(ctx, &closed)
	if err != nil {
		return nil, err
	}
	if closed.Open {
		r.res.Open = true
		return &r.res, nil
	}
	err = r.all(ctx)
	r.tell(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.res.Leaked) > 0 {
		return nil, r.failed()
	}
	if in.Owner.Node == "" && closed.Status != "" && !r.left.More {
		r.confirm(ctx, closed.Status)
	}
	return &r.res, nil
}

// all releases what is left, part by part where it is much.
func (r *reaping) all(ctx workflow.Context) error {
	for round := range maxRounds {
		var reaper *activities.Reaper
		left := activities.Remains{}
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, remainsOptions()), reaper.Remains, r.in).Get(ctx, &left)
		if err != nil {
			return err
		}
		r.left, r.in.Notify = left, left.Notify
		r.res.Pipeline = left.Pipeline
		if round == 0 {
			r.hosts(ctx, left.Bound)
		}
		leaked := len(r.res.Leaked)
		r.release(ctx, left.Entries)
		if !left.More || len(r.res.Leaked) > leaked {
			return nil // what is left over is for the next pass
		}
	}
	return nil
}

// note notes what has become of an entry.
func (r *reaping) note(e *resource.Entry) {
	line := activities.ReapedEntry{Node: e.Node, Kind: e.Kind, Name: e.Name, Host: e.Host}
	if e.Open() {
		line.Error = e.Error
		r.res.Leaked = append(r.res.Leaked, line)
	} else {
		r.res.Released = append(r.res.Released, line)
	}
	r.news = append(r.news, *e)
}

// tell tells people what has newly leaked, and what no longer is.
func (r *reaping) tell(ctx workflow.Context) {
	var leaked, released []resource.Entry
	for i := range r.news {
		e := &r.news[i]
		switch {
		case e.Open() && !r.were[e.Key()]:
			leaked = append(leaked, *e)
		case !e.Open() && r.were[e.Key()]:
			released = append(released, *e)
		}
	}
	notice := activities.Notice{
		Tenant: r.left.Tenant, Project: r.left.Project, Pipeline: r.left.Pipeline,
		Run: r.res.ID, RunID: r.res.RunID, RunKey: r.in.Owner.RunKey,
	}
	for _, note := range []string{
		tell(ctx, r.left.Notify, notice, activities.EventLeaked, leaked),
		tell(ctx, r.left.Notify, notice, activities.EventReleased, released),
	} {
		if note != "" {
			r.res.Notes = append(r.res.Notes, note)
		}
	}
}

// tell tells people what has become of entries. What it returns for the notes is
// "" where that went well, or there was nothing to tell.
func tell(ctx workflow.Context, who *spec.Notify, notice activities.Notice, event string, entries []resource.Entry) string {
	if len(entries) == 0 {
		return ""
	}
	const most = 100
	notice.Event, notice.At = event, workflow.Now(ctx)
	for i := range entries[:min(len(entries), most)] {
		e := &entries[i]
		notice.Resources = append(notice.Resources, activities.NoticeResource{
			Node: e.Node, Scope: string(e.Scope), Kind: e.Kind, Name: e.Name, State: e.State, Attempts: e.Attempts,
			Host: e.Host, Error: e.Error, Since: e.Since,
		})
	}
	return notify(ctx, who, notice, "what is "+event)
}

// notify tells people something, of which what says in words what it is.
func notify(ctx workflow.Context, who *spec.Notify, notice activities.Notice, what string) string {
	var notifier *activities.Notifier
	opts := notifyOptions()
	opts.Summary = "tells " + what
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), notifier.Notify,
		activities.NotifyInput{Notify: who, Notice: notice}).Get(ctx, nil)
	if err == nil {
		return ""
	}
	return fmt.Sprintf("nobody could be told of %s: %s", what, reason(err))
}

// confirm writes down that nothing is left.
func (r *reaping) confirm(ctx workflow.Context, status run.Status) {
	var reaper *activities.Reaper
	opts := controlOptions()
	opts.Summary = "confirms that nothing is left"
	opts.RetryPolicy.MaximumAttempts = 5
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), reaper.ConfirmReaped,
		activities.ConfirmInput{RunKey: r.in.Owner.RunKey, Status: status}).Get(ctx, nil)
	if err != nil {
		r.res.Notes = append(r.res.Notes, fmt.Sprintf("that nothing is left could not be written down: %v", err))
	}
}

// failed is the error of a release that is not complete.
func (r *reaping) failed() error {
	const few = 5
	names := make([]string, 0, few)
	for _, e := range r.res.Leaked[:min(len(r.res.Leaked), few)] {
		names = append(names, fmt.Sprintf("%s %s of %s", e.Kind, e.Name, e.Node))
	}
	message := "not released: " + strings.Join(names, ", ")
	if extra := len(r.res.Leaked) - few; extra > 0 {
		message += fmt.Sprintf(" and %d more", extra)
	}
	return temporal.NewApplicationErrorWithOptions(message, string(run.TriggerDependencyUnavailable),
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{r.res}})
}
