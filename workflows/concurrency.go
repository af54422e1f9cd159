package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/expr"
	"belay.run/internal/measure"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

const (
	// askAgain is how often one that waits asks its group anew. That changes
	// nothing, unless somebody has terminated the group's workflow.
	askAgain = 5 * time.Minute
	// hearing is how long a process may go without word that its workflow was
	// closed: until its next heartbeat, and a margin.
	hearing = 7 * time.Second
)

// slot is a place in a concurrency group, from the moment it is asked for. A nil
// slot is one of no group: it is free and there is nothing to give back.
type slot struct {
	in   activities.SlotInput
	held bool
	// kind and name are what is waited for, for people.
	kind, name string
	// show takes what is waited for; nil when that is over.
	show func(*run.WaitingFor)
	// mail brings the news of the group.
	mail *mailbox
}

// newSlot makes the slot that c asks for on behalf of an owner; nil where c is.
func newSlot(c *spec.Concurrency, scope expr.Scope, tenant, project string, request activities.SlotRequest) (*slot, error) {
	if c == nil {
		return nil, nil //nolint:nilnil // no group
	}
	name, err := expr.String(c.Group, scope)
	if err == nil {
		name = strings.TrimSpace(name)
		err = spec.CheckGroup(name)
	}
	if err != nil {
		return nil, fmt.Errorf("concurrency.group: %w", err)
	}
	request.Limit, request.OnFull = max(c.Limit, 1), c.OnFull
	return &slot{
		kind: run.WaitsGroup, name: name,
		in: activities.SlotInput{Tenant: tenant, Project: project, Group: name, Request: request},
	}, nil
}

// take asks for the slot and waits until it is granted. The cause it returns
// says why it never will be. Where ctx is cancelled it returns none, and the
// slot is not held; it is to be released in any case.
func (s *slot) take(ctx workflow.Context) *run.Cause {
	if s == nil {
		return nil
	}
	now := workflow.Now(ctx)
	waiting := &run.WaitingFor{Kind: s.kind, Name: s.name, Since: &now}
	s.show(waiting)
	defer s.show(nil)
	me := memberOf{s.in.Group, s.in.Request.Owner.Node}
	for {
		if err := s.ask(ctx); err != nil {
			return unlessCancelled(err)
		}
		for {
			heard, err := workflow.AwaitWithTimeout(ctx, askAgain, func() bool { return s.mail.waiting(me) })
			if err != nil {
				return nil // cancelled
			}
			if !heard {
				break
			}
			news, _ := s.mail.next(me)
			switch news.State {
			case activities.SlotGranted:
				s.held = true
				measureTook(ctx, measure.Waited, measure.Group, now)
				return nil
			case activities.SlotRefused:
				return s.refused(news.Holder)
			case activities.SlotQueued:
				told := *waiting
				told.Position, told.Holder = news.Position, news.Holder
				s.show(&told)
			}
		}
	}
}

func (s *slot) ask(ctx workflow.Context) error {
	var groups *activities.Groups
	opts := controlOptions()
	opts.Summary = "asks for a slot of the group " + s.in.Group
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, opts), groups.AcquireSlot, s.in).Get(ctx, nil)
}

func (s *slot) refused(holder string) *run.Cause {
	return &run.Cause{
		Trigger: run.TriggerGroupFull, Source: s.in.Request.Owner.Node,
		Message: fmt.Sprintf("the group %s is full: %s holds it", s.in.Group, holder),
	}
}

// unlessCancelled is the cause of an activity that failed; none where its cancel
// ended it.
func unlessCancelled(err error) *run.Cause {
	if _, cancelled := errors.AsType[*temporal.CanceledError](err); cancelled {
		return nil
	}
	return readOutcome("", nil, err).cause
}

// release gives the slot back, or the place in the queue, also after a cancel.
// What it returns for the notes is "" where that went well: else the group will
// find that its owner is gone.
func (s *slot) release(ctx workflow.Context, within time.Duration) (note string) {
	if s == nil {
		return ""
	}
	d, _ := workflow.NewDisconnectedContext(ctx)
	var groups *activities.Groups
	opts := controlOptions()
	opts.Summary = "leaves the group " + s.in.Group
	opts.ScheduleToCloseTimeout = max(within, opts.StartToCloseTimeout)
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(d, opts), groups.ReleaseSlot, s.in).Get(d, nil)
	if err == nil {
		return ""
	}
	return fmt.Sprintf("the group %s was not told that its slot is free; it finds out by itself: %v", s.in.Group, err)
}

// linger is how long processes of these steps may live on after their workflow
// was closed from outside.
func linger(lists ...[]spec.Step) time.Duration {
	longest := time.Duration(0)
	for _, steps := range lists {
		for i := range steps {
			longest = max(longest, steps[i].GracePeriod, linger(steps[i].Parallel)-hearing)
		}
	}
	return longest + hearing
}
