package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/expr"
	"belay.run/internal/resource"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// mailbox hands the news of concurrency groups to those that wait for them: a
// stage and its steps may be in several groups at once, and have one inbox.
type mailbox struct {
	inbox workflow.ReceiveChannel
	news  map[memberOf][]activities.SlotNews
}

// memberOf is a membership of a node in a group.
type memberOf struct{ group, node string }

func newMailbox(ctx workflow.Context) *mailbox {
	return &mailbox{inbox: workflow.GetSignalChannel(ctx, activities.SlotNewsSignal), news: map[memberOf][]activities.SlotNews{}}
}

// next is the next news for a member, if there is any. News without a name come
// from a group that an older worker keeps: they are for whoever is there alone.
func (m *mailbox) next(of memberOf) (activities.SlotNews, bool) {
	for {
		var news activities.SlotNews
		if !m.inbox.ReceiveAsync(&news) {
			break
		}
		to := memberOf{news.Group, news.Node}
		if news.Group == "" {
			to = of
		}
		m.news[to] = append(m.news[to], news)
	}
	mine := m.news[of]
	if len(mine) == 0 {
		return activities.SlotNews{}, false
	}
	m.news[of] = mine[1:]
	return mine[0], true
}

// waiting reports whether there may be news for a member.
func (m *mailbox) waiting(of memberOf) bool { return m.inbox.Len() > 0 || len(m.news[of]) > 0 }

// takeSlots waits for the slots that a step holds over all its attempts, sorted by
// name, so that two steps never wait for one another. The cause it returns says
// why it will not have them all; whatever it has is given back by leaveSlots.
func (s *stage) takeSlots(ctx workflow.Context, st *spec.Step, doc *run.Step) ([]*slot, *run.Cause) {
	if !st.Holds(resource.KindSlot) {
		return nil, nil
	}
	var slots []*slot
	for i := range st.Resources {
		r := &st.Resources[i]
		if r.Kind != resource.KindSlot {
			continue
		}
		sl, err := newSlot(&spec.Concurrency{Group: expr.Literal(r.Name), Limit: r.Limit, OnFull: spec.OnFullQueue}, nil,
			s.in.Tenant, s.in.Project, activities.SlotRequest{
				Owner:  activities.Owner{RunKey: s.in.RunKey, Node: doc.Node, WorkflowID: s.owner.WorkflowID, RunID: s.owner.RunID},
				Linger: linger([]spec.Step{*st}),
			})
		if err != nil {
			return nil, &run.Cause{Trigger: run.TriggerInvalid, Source: doc.Node, Message: fmt.Sprintf("resources: %v", err)}
		}
		sl.mail = s.mail(ctx)
		sl.show = func(w *run.WaitingFor) { doc.WaitingFor = w; s.describe(ctx) }
		slots = append(slots, sl)
	}
	slices.SortFunc(slots, func(a, b *slot) int { return cmp.Compare(a.in.Group, b.in.Group) })
	for i, sl := range slots {
		cause := sl.take(ctx)
		if sl.held {
			doc.Resources = append(doc.Resources, run.Resource{Kind: resource.KindSlot, Name: sl.in.Group, State: run.ResourceHeld})
			continue
		}
		if cause != nil {
			cause.Source = doc.Node
		}
		return slots[:i+1], cause
	}
	return slots, nil
}

// mail is the stage's mailbox.
func (s *stage) mail(ctx workflow.Context) *mailbox {
	if s.mailbox == nil {
		s.mailbox = newMailbox(ctx)
	}
	return s.mailbox
}

// leaveSlots gives slots back in the background. Where an attempt said that some of
// its processes may live on, they stay until the stage's workspace is given back;
// those of one that fell silent are gone by the time that anybody notices.
func (s *stage) leaveSlots(ctx workflow.Context, doc *run.Step, slots []*slot) {
	if len(slots) == 0 {
		return
	}
	lives := slices.ContainsFunc(doc.Resources, func(r run.Resource) bool {
		return r.Kind == resource.KindProcess && r.State == run.ResourceReleasing
	})
	if lives {
		s.slotsLater = append(s.slotsLater, func(ctx workflow.Context) { s.giveSlots(ctx, doc, slots) })
		return
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	s.releasing++
	workflow.Go(d, func(d workflow.Context) {
		defer func() { s.releasing-- }()
		s.giveSlots(d, doc, slots)
	})
}

// giveSlots gives slots back, the last first.
func (s *stage) giveSlots(ctx workflow.Context, doc *run.Step, slots []*slot) {
	for _, sl := range slices.Backward(slots) {
		note := sl.release(ctx, s.in.ReleaseTimeout)
		if note != "" {
			s.doc.Notes = append(s.doc.Notes, doc.Node+": "+note)
		}
		for i := range doc.Resources {
			if r := &doc.Resources[i]; r.Kind == resource.KindSlot && r.Name == sl.in.Group {
				r.Attempts++
				if r.State = run.ResourceReleased; note != "" {
					r.State, r.Error = run.ResourceLeaked, note
				}
			}
		}
	}
}

// acquireBound is how long an attempt may take to acquire what the step holds, for
// the backstop of its activity.
func acquireBound(st *spec.Step) time.Duration {
	var all time.Duration
	for i := range st.Resources {
		all += st.Resources[i].Timeout
		if st.Resources[i].Kind == resource.KindLock {
			all += resource.LockWait + resource.LockPatience
		}
	}
	return all
}

// evaluateResources evaluates the names of a step's resources.
func (s *stage) evaluateResources(st *spec.Step, scope expr.Scope) ([]spec.Resource, error) {
	if len(st.Resources) == 0 {
		return nil, nil
	}
	out := slices.Clone(st.Resources)
	seen := map[string]string{}
	for i := range out {
		name, err := expr.String(out[i].Name, scope)
		if err == nil {
			err = spec.CheckResource(name)
		}
		if err != nil {
			return nil, fmt.Errorf("resources: %s %s: %w", out[i].Kind, out[i].Name, err)
		}
		out[i].Name = name
		as := out[i].Kind + " " + resource.EnvName(name)
		if other, twice := seen[as]; twice {
			return nil, fmt.Errorf("resources: the %s %s and %s would be told to the step by one variable", out[i].Kind, other, name)
		}
		seen[as] = name
	}
	return out, nil
}
