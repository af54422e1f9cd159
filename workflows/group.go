package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
)

const (
	// groupIdle is how long a group without members stays open.
	groupIdle = 5 * time.Second
	// maxGroupMessages is after how many messages a group continues as new:
	// past 10,000 Temporal refuses a workflow's signals.
	maxGroupMessages = 4000
	// maxSends bounds the signals of a group that are under way at once. Past
	// 2,000 Temporal blocks a workflow for ever.
	maxSends = 100
)

// group is the workflow of a concurrency group. Everything it does follows from
// the order in which messages arrive: nothing else decides who is next.
type group struct {
	in    activities.GroupInput
	state GroupState
	inbox workflow.ReceiveChannel
	sends workflow.Semaphore
	// lookAt is when members are to be looked for next; turn is where in the
	// queue that goes on.
	lookAt time.Time
	turn   int
	// replaced are members to be cancelled.
	replaced []activities.Supersession
	// moved: places in the queue have changed since they were told.
	moved bool
	// under is how many activities and signals are under way.
	under    int
	messages int
	// leaving: nothing new is begun, a next run of the workflow will.
	leaving bool
}

// Group keeps one concurrency group: who holds its slots, and who waits for one,
// strictly in the order of arrival. It ends when it has had no members for a
// while; the next that asks starts it again. A cancel does not end it, as its
// members go on.
func Group(ctx workflow.Context, in activities.GroupInput) (*GroupState, error) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	g, err := newGroup(ctx, in)
	if err != nil {
		return nil, err
	}
	g.fill(ctx)
	workflow.Go(ctx, g.watch)
	workflow.Go(ctx, g.inform)
	for {
		g.drain(ctx)
		switch {
		case g.full(ctx):
			return nil, g.again(ctx)
		case g.idle():
			over, err := g.rest(ctx)
			if err != nil || over {
				return &g.state, err
			}
		default:
			err := workflow.Await(ctx, func() bool { return g.inbox.Len() > 0 || g.idle() || g.full(ctx) })
			if err != nil {
				return nil, fmt.Errorf("waiting for messages: %w", err)
			}
		}
	}
}

func newGroup(ctx workflow.Context, in activities.GroupInput) (*group, error) {
	g := &group{
		in: in, inbox: workflow.GetSignalChannel(ctx, activities.SlotSignal), sends: workflow.NewSemaphore(ctx, maxSends),
	}
	if err := g.state.unpack(in.State); err != nil {
		return nil, err
	}
	g.state.Tenant, g.state.Project, g.state.Name = in.Tenant, in.Project, in.Name
	if in.State == nil {
		g.lookAt = workflow.Now(ctx).Add(groupLookEvery)
	}
	// What was carried over may not have been told to all.
	g.moved = len(g.state.Queue) > 0
	err := workflow.SetQueryHandler(ctx, GroupStateQuery, func() (GroupState, error) { return g.state.shown(), nil })
	if err != nil {
		return nil, fmt.Errorf("setting the %s query: %w", GroupStateQuery, err)
	}
	return g, nil
}

// drain takes all messages that have arrived, in their order.
func (g *group) drain(ctx workflow.Context) {
	for {
		var m activities.SlotRequest
		if !g.inbox.ReceiveAsync(&m) {
			break
		}
		g.messages++
		if m.Release {
			g.leave(ctx, m.Owner)
		} else {
			g.enter(ctx, &m)
		}
		g.fill(ctx)
	}
	g.supersede(ctx)
	g.describe(ctx)
}

// idle reports whether nobody needs the group.
func (g *group) idle() bool {
	return len(g.state.Holders) == 0 && len(g.state.Queue) == 0 && g.under == 0
}

// rest waits a while for the next member, and reports whether none came.
func (g *group) rest(ctx workflow.Context) (over bool, err error) {
	came, err := workflow.AwaitWithTimeout(ctx, groupIdle, func() bool { return g.inbox.Len() > 0 })
	if err != nil {
		return false, fmt.Errorf("waiting for members: %w", err)
	}
	return !came && g.inbox.Len() == 0, nil
}

// full reports whether the history of the group has become long.
func (g *group) full(ctx workflow.Context) bool {
	return g.messages >= maxGroupMessages || workflow.GetInfo(ctx).GetContinueAsNewSuggested()
}

// again continues as new, with every message taken and the state carried over.
func (g *group) again(ctx workflow.Context) error {
	g.leaving = true
	for first := true; first || g.under > 0; first = false {
		if err := workflow.Await(ctx, func() bool { return g.under == 0 }); err != nil {
			return fmt.Errorf("waiting for what is under way: %w", err)
		}
		g.drain(ctx)
	}
	in := g.in
	var err error
	if in.State, err = g.state.pack(); err != nil {
		return err
	}
	return workflow.NewContinueAsNewError(ctx, activities.GroupWorkflow, in)
}

// describe shows the group in Temporal's UI.
func (g *group) describe(ctx workflow.Context) {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**: %d of %d held, %d waiting\n", g.in.Name, len(g.state.Holders), g.state.Limit, len(g.state.Queue))
	list := func(title string, members []Member) {
		for i := range members[:min(len(members), maxDescribed)] {
			fmt.Fprintf(&b, "\n- %s `%s`", title, activities.SlotOwnerName(members[i].Owner))
		}
	}
	list("holds", g.state.Holders)
	list("waits", g.state.Queue)
	for _, t := range g.state.TakenBack {
		fmt.Fprintf(&b, "\n- taken back from `%s`: %s", activities.SlotOwnerName(t.Owner), t.Why)
	}
	workflow.SetCurrentDetails(ctx, b.String())
}
