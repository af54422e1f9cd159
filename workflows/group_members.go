package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/spec"
)

const (
	// informEvery is how often those who wait are told of their place, and
	// toldAtOnce how many of them then: each time costs the group about as much
	// as a slot that changes hands. Who looks closer asks the group.
	informEvery = 3 * time.Second
	toldAtOnce  = 10
	// maxReplaced bounds the members that one activity cancels.
	maxReplaced = 200
)

// enter takes a request for a slot.
func (g *group) enter(ctx workflow.Context, m *activities.SlotRequest) {
	s := &g.state
	if m.Owner.WorkflowID == "" || s.hasLeft(m.Owner) {
		return // sent twice, and late
	}
	if i := find(s.Holders, m.Owner); i >= 0 {
		s.Holders[i].Owner = m.Owner
		g.send(ctx, m.Owner, activities.SlotNews{State: activities.SlotGranted})
		return
	}
	if i := find(s.Queue, m.Owner); i >= 0 {
		s.Queue[i].Owner, s.Queue[i].Told, g.moved = m.Owner, activities.SlotNews{}, true
		return
	}
	if s.hasRunOf(m.Owner) {
		g.send(ctx, m.Owner, activities.SlotNews{State: activities.SlotGranted})
		return
	}
	s.Limit = max(m.Limit, 1)
	s.Queue = append(s.Queue, Member{Owner: m.Owner, AskedAt: workflow.Now(ctx), OnFull: m.OnFull, Linger: m.Linger})
	g.fill(ctx)
	if find(s.Queue, m.Owner) < 0 {
		return
	}
	g.moved = true
	switch m.OnFull {
	case spec.OnFullCancelRunning:
		g.makeWay(ctx)
	case spec.OnFullReject:
		g.lookAt = workflow.Now(ctx) // it is refused once the holders are known to live
	}
}

// fill gives free slots to those who wait, in their order.
func (g *group) fill(ctx workflow.Context) {
	s := &g.state
	for !g.leaving && len(s.Holders) < s.Limit && len(s.Queue) > 0 {
		next := s.Queue[0]
		s.Queue = slices.Delete(s.Queue, 0, 1)
		now := workflow.Now(ctx)
		next.HeldAt = &now
		s.Holders = append(s.Holders, next)
		g.moved = true
		g.send(ctx, next.Owner, activities.SlotNews{State: activities.SlotGranted})
	}
}

// leave takes an owner out, whether it holds or waits. It is remembered for a
// while: what it sent before may come after.
func (g *group) leave(ctx workflow.Context, o activities.Owner) {
	s := &g.state
	if i := find(s.Holders, o); i >= 0 {
		s.Holders = slices.Delete(s.Holders, i, i+1)
	}
	if i := find(s.Queue, o); i >= 0 {
		s.Queue = slices.Delete(s.Queue, i, i+1)
		g.moved = true
	}
	now := workflow.Now(ctx)
	s.Left = append(s.Left, Departure{RunID: o.RunID, Node: o.Node, At: now})
	s.forget(now)
}

// makeWay has all but the newest make way, as many as there are slots for. Those
// who wait leave the queue at once; those who hold a slot keep it until all of
// theirs is gone.
func (g *group) makeWay(ctx workflow.Context) {
	s := &g.state
	newest := activities.SlotOwnerName(s.Queue[len(s.Queue)-1].Owner)
	going := len(s.Queue) - s.Limit
	for i := range s.Holders {
		if !s.Holders[i].Superseded {
			going++
		}
	}
	for i := 0; i < len(s.Holders) && going > 0; i++ {
		if h := &s.Holders[i]; !h.Superseded {
			h.Superseded = true
			g.replaced = append(g.replaced, activities.Supersession{Owner: h.Owner, By: newest})
			going--
		}
	}
	for ; going > 0; going-- {
		o := s.Queue[0].Owner
		g.leave(ctx, o)
		g.replaced = append(g.replaced, activities.Supersession{Owner: o, By: newest})
	}
	g.lookAt = workflow.Now(ctx) // a holder that is gone has nothing to make way with
}

// supersede has those cancelled who are to make way.
func (g *group) supersede(ctx workflow.Context) {
	for part := range slices.Chunk(g.replaced, maxReplaced) {
		g.under++
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer func() { g.under-- }()
			var groups *activities.Groups
			opts := controlOptions()
			opts.Summary = "cancels who makes way"
			err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), groups.SupersedeSlots,
				activities.MakeWayInput{Group: g.in.Name, Replaced: part}).Get(ctx, nil)
			if err != nil {
				workflow.GetLogger(ctx).Error("could not cancel who is to make way", "error", err)
			}
		})
	}
	g.replaced = nil
}

// send tells a member something. One that cannot be told is looked for: it may
// have closed while it waited.
func (g *group) send(ctx workflow.Context, o activities.Owner, news activities.SlotNews) {
	news.Group, news.Node = g.in.Name, o.Node
	g.under++
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { g.under-- }()
		if err := g.sends.Acquire(ctx, 1); err != nil {
			return // only where the workflow is over
		}
		defer g.sends.Release(1)
		err := workflow.SignalExternalWorkflow(ctx, o.WorkflowID, o.RunID, activities.SlotNewsSignal, news).Get(ctx, nil)
		i := find(g.state.Holders, o)
		switch granted := news.State == activities.SlotGranted && i >= 0 && g.state.Holders[i].Owner == o; {
		case err == nil && granted:
			g.state.Holders[i].Heard = true
		case granted:
			workflow.GetLogger(ctx).Info("a member could not be told of its slot", "workflow", o.WorkflowID, "error", err)
			g.lookFor(ctx, []activities.Owner{o})
			g.fill(ctx)
		}
	})
}

// inform tells those who wait of their places, now and then: the first of those
// to whom it is news.
func (g *group) inform(ctx workflow.Context) {
	for {
		if workflow.Await(ctx, func() bool { return g.moved && len(g.state.Queue) > 0 }) != nil {
			return
		}
		if workflow.Sleep(ctx, informEvery) != nil || g.leaving {
			return
		}
		g.moved = false
		holder, told := g.state.holder(), 0
		for i := range g.state.Queue {
			m := &g.state.Queue[i]
			news := activities.SlotNews{State: activities.SlotQueued, Position: i + 1, Holder: holder}
			if m.Told == news {
				continue
			}
			if told++; told > toldAtOnce {
				g.moved = true
				break
			}
			m.Told = news
			g.send(ctx, m.Owner, news)
		}
	}
}
