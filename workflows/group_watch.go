package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/spec"
)

const (
	// groupLookEvery is how often members are looked for while somebody waits,
	// groupLookSeldom while nobody does.
	groupLookEvery  = 10 * time.Second
	groupLookSeldom = time.Minute
	// maxLooked bounds those who wait of whom one look asks; the next goes on
	// behind them. Holders are all asked about.
	maxLooked = 100
)

// watch looks for members now and then, more often while somebody waits: a slot
// comes back from an owner that was ended without being able to give it back.
func (g *group) watch(ctx workflow.Context) {
	seldom := workflow.GetVersion(ctx, "look-while-nobody-waits", workflow.DefaultVersion, 1) == 1
	for {
		needed := func() bool { return len(g.state.Queue) > 0 || seldom && len(g.state.Holders) > 0 }
		if workflow.Await(ctx, func() bool { return needed() && !g.leaving }) != nil {
			return
		}
		if len(g.state.Queue) == 0 {
			waited, err := workflow.AwaitWithTimeout(ctx, groupLookSeldom, func() bool {
				return len(g.state.Queue) > 0 || len(g.state.Holders) == 0 || g.leaving
			})
			if err != nil {
				return
			}
			if !waited {
				g.look(ctx)
			}
			continue
		}
		if wait := g.lookAt.Sub(workflow.Now(ctx)); wait > 0 {
			at := g.lookAt
			_, err := workflow.AwaitWithTimeout(ctx, wait, func() bool {
				return len(g.state.Queue) == 0 || g.lookAt.Before(at) || g.leaving
			})
			if err != nil {
				return
			}
			continue
		}
		g.look(ctx)
	}
}

// look asks after the holders and some of those who wait, and then refuses those
// who wanted to be refused and came before.
func (g *group) look(ctx workflow.Context) {
	g.lookAt = workflow.Now(ctx).Add(groupLookEvery)
	owners := make([]activities.Owner, 0, len(g.state.Holders)+maxLooked)
	for i := range g.state.Holders {
		owners = append(owners, g.state.Holders[i].Owner)
	}
	var refused []activities.Owner
	for i := range g.state.Queue {
		if g.state.Queue[i].OnFull == spec.OnFullReject {
			refused = append(refused, g.state.Queue[i].Owner)
		}
	}
	known := g.lookFor(ctx, append(owners, g.some()...))
	g.fill(ctx)
	if known {
		g.refuse(ctx, refused)
	}
	g.describe(ctx)
}

// some are the next of those who wait to be looked for.
func (g *group) some() []activities.Owner {
	if g.turn >= len(g.state.Queue) {
		g.turn = 0
	}
	part := g.state.Queue[g.turn:min(g.turn+maxLooked, len(g.state.Queue))]
	g.turn += len(part)
	owners := make([]activities.Owner, len(part))
	for i := range part {
		owners[i] = part[i].Owner
	}
	return owners
}

// lookFor asks after owners, and takes out those who are gone. It reports
// whether that is known of them now.
func (g *group) lookFor(ctx workflow.Context, owners []activities.Owner) bool {
	g.under++
	defer func() { g.under-- }()
	for part := range slices.Chunk(owners, maxLooked) {
		var groups *activities.Groups
		var lives []activities.OwnerLife
		opts := controlOptions()
		opts.Summary = "looks which members live"
		opts.ScheduleToCloseTimeout = 2 * time.Minute
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), groups.SlotOwners,
			activities.OwnersInput{Owners: part}).Get(ctx, &lives)
		if err != nil || len(lives) != len(part) {
			workflow.GetLogger(ctx).Warn("could not look which members live", "error", err)
			return false
		}
		for i := range part {
			g.judge(ctx, part[i], lives[i])
		}
	}
	return true
}

// judge takes an owner out whose workflow is gone. One who waits, or never heard
// of its slot, has nothing that could still run; a holder's processes may have
// to hear of it first.
func (g *group) judge(ctx workflow.Context, o activities.Owner, life activities.OwnerLife) {
	s := &g.state
	if i := find(s.Queue, o); i >= 0 && s.Queue[i].Owner == o && !life.Alive {
		g.leave(ctx, o)
		return
	}
	i := find(s.Holders, o)
	if i < 0 || s.Holders[i].Owner != o {
		return // it left meanwhile
	}
	h := &s.Holders[i]
	if life.Alive {
		h.MissedAt = nil
		return
	}
	if !h.Heard {
		g.leave(ctx, o)
		return
	}
	now := workflow.Now(ctx)
	if h.MissedAt == nil {
		since := now
		if !life.EndedAt.IsZero() {
			since = life.EndedAt
		}
		h.MissedAt = &since
	}
	if free := h.MissedAt.Add(h.Linger); free.After(now) {
		if free.Before(g.lookAt) {
			g.lookAt = free
		}
		return
	}
	g.takeBack(ctx, *h, life)
}

// takeBack frees the slot of an owner that is gone, and keeps a record of it.
func (g *group) takeBack(ctx workflow.Context, h Member, life activities.OwnerLife) {
	why := "its workflow is closed and did not give the slot back"
	if life.EndedAt.IsZero() {
		why = "its workflow is not there any more"
	}
	workflow.GetLogger(ctx).Warn("slot taken back", "group", g.in.Name,
		"owner", activities.SlotOwnerName(h.Owner), "held_at", h.HeldAt, "why", why)
	s := &g.state
	s.TakenBack = append(s.TakenBack, TakenBack{Owner: h.Owner, HeldAt: h.HeldAt, At: workflow.Now(ctx), Why: why})
	if extra := len(s.TakenBack) - maxTakenBack; extra > 0 {
		s.TakenBack = slices.Delete(s.TakenBack, 0, extra)
	}
	g.leave(ctx, h.Owner)
}

// refuse refuses those of owners who still wait.
func (g *group) refuse(ctx workflow.Context, owners []activities.Owner) {
	holder := g.state.holder()
	for _, o := range owners {
		if find(g.state.Queue, o) >= 0 {
			g.leave(ctx, o)
			g.send(ctx, o, activities.SlotNews{State: activities.SlotRefused, Holder: holder})
		}
	}
}
