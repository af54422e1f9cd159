package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"belay.run/activities"
	"belay.run/internal/spec"
	"belay.run/workflows"
)

// club is a group in Temporal's test environment, and what it said to whom.
type club struct {
	*testsuite.TestWorkflowEnvironment

	mu   sync.Mutex
	said []string
	// ended are the workflows that are closed, and when they were; unheard
	// those that cannot be told anything.
	ended   map[string]time.Time
	unheard map[string]bool
	looks   int
}

func newClub(t *testing.T) *club {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	c := &club{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), ended: map[string]time.Time{}, unheard: map[string]bool{}}
	c.SetTestTimeout(20 * time.Second)
	c.RegisterActivity(&clubActivities{c})
	c.RegisterWorkflowWithOptions(workflows.Group, workflow.RegisterOptions{Name: activities.GroupWorkflow})
	c.OnSignalExternalWorkflow(anything, anything, anything, activities.SlotNewsSignal, anything).Return(
		func(_, id, _, _ string, arg any) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			news, ok := arg.(activities.SlotNews)
			if !ok {
				return fmt.Errorf("news of type %T", arg)
			}
			if c.unheard[id] {
				return errors.New("unknown external workflow")
			}
			if news.State != activities.SlotQueued {
				c.said = append(c.said, news.State+" "+id)
			} else {
				c.said = append(c.said, fmt.Sprintf("%s is %d after %s", id, news.Position, news.Holder))
			}
			return nil
		})
	return c
}

// clubActivities are the activities that the group calls.
type clubActivities struct{ club *club }

func (a *clubActivities) SlotOwners(_ context.Context, in activities.OwnersInput) ([]activities.OwnerLife, error) {
	c := a.club
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	lives := make([]activities.OwnerLife, len(in.Owners))
	for i, o := range in.Owners {
		at, ended := c.ended[o.WorkflowID]
		lives[i] = activities.OwnerLife{Alive: !ended, EndedAt: at}
	}
	return lives, nil
}

func (a *clubActivities) SupersedeSlots(_ context.Context, in activities.MakeWayInput) error {
	c := a.club
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range in.Replaced {
		c.said = append(c.said, "cancel "+r.Owner.WorkflowID+" for "+r.By)
	}
	return nil
}

// heard is what the group has said of slots, in order.
func (c *club) heard() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.said...)
}

func member(name string) activities.Owner {
	return activities.Owner{RunKey: "key-" + name, WorkflowID: name, RunID: "run-" + name}
}

// queue and its like are requests of a member.
func queue(name string, limit int, edit ...func(*activities.SlotRequest)) activities.SlotRequest {
	r := activities.SlotRequest{Owner: member(name), Limit: limit, OnFull: spec.OnFullQueue}
	for _, f := range edit {
		f(&r)
	}
	return r
}

func replace(name string, limit int) activities.SlotRequest {
	return queue(name, limit, func(r *activities.SlotRequest) { r.OnFull = spec.OnFullCancelRunning })
}

func reject(name string, limit int) activities.SlotRequest {
	return queue(name, limit, func(r *activities.SlotRequest) { r.OnFull = spec.OnFullReject })
}

func leaves(name string) activities.SlotRequest {
	return activities.SlotRequest{Owner: member(name), Release: true}
}

// at sends the group requests at a time after its start.
func (c *club) at(after time.Duration, requests ...activities.SlotRequest) {
	c.RegisterDelayedCallback(func() {
		for _, r := range requests {
			c.SignalWorkflow(activities.SlotSignal, r)
		}
	}, after)
}

// end closes the workflow of a member at a time after the group's start.
func (c *club) end(after time.Duration, name string) {
	c.RegisterDelayedCallback(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended[name] = c.Now()
	}, after)
}

// ask reads the group's state at a time after its start.
func (c *club) ask(t *testing.T, after time.Duration, check func(workflows.GroupState)) {
	t.Helper()
	c.RegisterDelayedCallback(func() {
		value, err := c.QueryWorkflow(workflows.GroupStateQuery)
		require.NoError(t, err)
		var s workflows.GroupState
		require.NoError(t, value.Get(&s))
		check(s)
	}, after)
}

// names are the ids of members, in their order.
func names(members []workflows.Member) []string {
	out := make([]string, 0, len(members))
	for i := range members {
		out = append(out, members[i].Owner.WorkflowID)
	}
	return out
}

// run lets the group run until it closes itself.
func (c *club) run(t *testing.T) workflows.GroupState {
	t.Helper()
	c.ExecuteWorkflow(workflows.Group, activities.GroupInput{Tenant: "t", Project: "p", Name: "g"})
	require.True(t, c.IsWorkflowCompleted(), "the group did not close itself")
	require.NoError(t, c.GetWorkflowError())
	var s workflows.GroupState
	require.NoError(t, c.GetWorkflowResult(&s))
	return s
}

func TestGroupQueue(t *testing.T) {
	t.Parallel()

	t.Run("GivesSlotsInOrderOfArrival", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, queue("a", 2), queue("b", 2), queue("c", 2), queue("d", 2))
		c.ask(t, 500*time.Millisecond, func(s workflows.GroupState) {
			require.Equal(t, []string{"a", "b"}, names(s.Holders))
			require.Equal(t, []string{"c", "d"}, names(s.Queue))
			require.Equal(t, 2, s.Waiting)
		})
		c.at(time.Second, leaves("b"), leaves("a"))
		c.at(2*time.Second, leaves("c"), leaves("d"))
		s := c.run(t)
		require.ElementsMatch(t, []string{"granted a", "granted b", "granted c", "granted d"}, c.heard())
		require.Empty(t, s.Holders)
		require.Empty(t, s.TakenBack)
	})

	t.Run("KeepsThePlaceOfOneThatAsksTwice", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, queue("a", 1), queue("b", 1), queue("c", 1), queue("b", 1))
		c.at(time.Second, leaves("a"))
		c.at(2*time.Second, leaves("b"))
		c.at(3*time.Second, leaves("c"))
		c.run(t)
		require.Equal(t, []string{"granted a", "granted b", "granted c"}, c.heard())
	})

	t.Run("TellsAHolderThatAsksAgain", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, queue("a", 1))
		c.at(time.Second, queue("a", 1))
		c.at(2*time.Second, leaves("a"))
		c.run(t)
		require.Equal(t, []string{"granted a", "granted a"}, c.heard())
	})

	t.Run("HearsNothingOfOneThatHasLeft", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, leaves("a"), queue("a", 1), queue("b", 1), leaves("b"), queue("b", 1), leaves("b"))
		c.run(t)
		require.Equal(t, []string{"granted b"}, c.heard())
	})

	t.Run("TakesTheNewestLimitAndNeverExceedsASmallerOne", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, queue("a", 3), queue("b", 3), queue("c", 3), queue("d", 1), queue("e", 1))
		c.at(time.Second, leaves("a"))
		c.at(2*time.Second, leaves("b"))
		c.ask(t, 2500*time.Millisecond, func(s workflows.GroupState) {
			require.Equal(t, []string{"c"}, names(s.Holders))
			require.Equal(t, 1, s.Limit)
		})
		c.at(3*time.Second, queue("f", 2))
		c.ask(t, 3500*time.Millisecond, func(s workflows.GroupState) {
			require.Equal(t, []string{"c", "d"}, names(s.Holders))
			require.Equal(t, []string{"e", "f"}, names(s.Queue))
		})
		c.at(4*time.Second, leaves("c"), leaves("d"), leaves("e"), leaves("f"))
		c.run(t)
	})

	t.Run("FreesThePlaceOfOneThatLeavesTheQueue", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, queue("a", 1), queue("b", 1), queue("c", 1))
		c.at(time.Second, leaves("b"))
		c.at(2*time.Second, leaves("a"))
		c.at(3*time.Second, leaves("c"))
		c.run(t)
		require.Equal(t, []string{"granted a", "granted c"}, c.heard())
	})

	t.Run("LetsTheStagesOfAHolderIn", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		inside := queue("a-stage", 1, func(r *activities.SlotRequest) { r.Owner.RunKey, r.Owner.Node = "key-a", "s" })
		c.at(0, queue("a", 1), inside, queue("b", 1))
		c.at(time.Second, activities.SlotRequest{Owner: inside.Owner, Release: true})
		c.ask(t, 1500*time.Millisecond, func(s workflows.GroupState) { require.Equal(t, []string{"a"}, names(s.Holders)) })
		c.at(2*time.Second, leaves("a"))
		c.at(3*time.Second, leaves("b"))
		c.run(t)
		require.ElementsMatch(t, []string{"granted a", "granted a-stage", "granted b"}, c.heard())
	})

	t.Run("TellsThoseWhoWaitOfTheirPlaces", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, queue("a", 1), queue("b", 1), queue("c", 1))
		c.at(time.Minute, leaves("a"))
		c.at(2*time.Minute, leaves("b"), leaves("c"))
		c.run(t)
		require.ElementsMatch(t, []string{
			"granted a", "b is 1 after a", "c is 2 after a", "granted b", "c is 1 after b", "granted c",
		}, c.heard())
	})

	t.Run("TellsEverybodyInTimeHoweverMany", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		const waiters = 35
		c.at(0, queue("a", 1))
		for i := range waiters {
			c.at(0, queue(fmt.Sprintf("w%d", i), 1))
		}
		c.RegisterDelayedCallback(func() { require.Len(t, c.heard(), 1+waiters) }, time.Minute)
		for i := range waiters {
			c.at(time.Minute, leaves(fmt.Sprintf("w%d", i)))
		}
		c.at(time.Minute, leaves("a"))
		c.run(t)
	})
}

func TestGroupCancelRunning(t *testing.T) {
	t.Parallel()

	t.Run("KeepsTheNewestOfABurstAndWaitsForTheHolder", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, replace("a", 1))
		c.at(time.Second, replace("b", 1), replace("c", 1), replace("d", 1))
		c.ask(t, 1500*time.Millisecond, func(s workflows.GroupState) {
			require.Equal(t, []string{"a"}, names(s.Holders))
			require.True(t, s.Holders[0].Superseded)
			require.Equal(t, []string{"d"}, names(s.Queue))
		})
		c.at(2*time.Second, leaves("a"))
		c.at(3*time.Second, leaves("d"))
		c.run(t)
		require.ElementsMatch(t, []string{"granted a", "cancel a for b", "cancel b for c", "cancel c for d", "granted d"}, c.heard())
	})

	t.Run("MakesRoomForTheNewestOnly", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, replace("a", 2), replace("b", 2))
		c.at(time.Second, replace("c", 2))
		c.at(2*time.Second, leaves("a"))
		c.ask(t, 2500*time.Millisecond, func(s workflows.GroupState) {
			require.Equal(t, []string{"b", "c"}, names(s.Holders))
			require.False(t, s.Holders[0].Superseded)
		})
		c.at(3*time.Second, leaves("b"), leaves("c"))
		c.run(t)
		require.ElementsMatch(t, []string{"granted a", "granted b", "cancel a for c", "granted c"}, c.heard())
	})

	t.Run("DoesNotLetOneBackInThatWasReplaced", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, replace("a", 1))
		c.at(time.Second, replace("b", 1), replace("c", 1), replace("b", 1))
		c.at(2*time.Second, leaves("b"), leaves("a"))
		c.at(3*time.Second, leaves("c"))
		c.run(t)
		require.ElementsMatch(t, []string{"granted a", "cancel a for b", "cancel b for c", "granted c"}, c.heard())
	})
}

func TestGroupReject(t *testing.T) {
	t.Parallel()

	t.Run("RefusesWhereTheHolderLives", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, queue("a", 1))
		c.at(time.Second, reject("b", 1), reject("c", 1))
		c.at(2*time.Second, leaves("a"))
		c.run(t)
		require.ElementsMatch(t, []string{"granted a", "refused b", "refused c"}, c.heard())
	})

	t.Run("GrantsWhereTheHolderIsGone", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, queue("a", 1))
		c.end(500*time.Millisecond, "a")
		c.at(time.Second, reject("b", 1))
		c.at(2*time.Second, leaves("b"))
		s := c.run(t)
		require.Equal(t, []string{"granted a", "granted b"}, c.heard())
		require.Equal(t, "a", s.TakenBack[0].Owner.WorkflowID)
	})
}

func TestGroupTakesBack(t *testing.T) {
	t.Parallel()

	t.Run("TheSlotOfAHolderThatIsGone", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, queue("a", 1), queue("b", 1))
		c.end(time.Second, "a")
		c.at(time.Minute, leaves("b"))
		s := c.run(t)
		require.Contains(t, c.heard(), "granted b")
		require.Len(t, s.TakenBack, 1)
		require.Equal(t, member("a"), s.TakenBack[0].Owner)
		require.NotEmpty(t, s.TakenBack[0].Why)
	})

	t.Run("ItNoSoonerThanItsProcessesCanBeGone", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		slow := queue("a", 1, func(r *activities.SlotRequest) { r.Linger = time.Minute })
		c.at(0, slow, queue("b", 1))
		c.end(time.Second, "a")
		c.ask(t, time.Minute, func(s workflows.GroupState) { require.Equal(t, []string{"a"}, names(s.Holders)) })
		c.ask(t, time.Minute+2*time.Second, func(s workflows.GroupState) { require.Equal(t, []string{"b"}, names(s.Holders)) })
		c.at(2*time.Minute, leaves("b"))
		c.run(t)
	})

	t.Run("ThePlaceOfAWaiterThatIsGone", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, queue("a", 1), queue("b", 1), queue("c", 1))
		c.end(time.Second, "b")
		c.ask(t, 30*time.Second, func(s workflows.GroupState) { require.Equal(t, []string{"c"}, names(s.Queue)) })
		c.at(time.Minute, leaves("a"), leaves("c"))
		s := c.run(t)
		require.Empty(t, s.TakenBack, "it held nothing")
	})

	t.Run("TheSlotOfOneThatCannotBeToldAtOnce", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.unheard["b"] = true
		c.at(0, queue("a", 1), queue("b", 1, func(r *activities.SlotRequest) { r.Linger = time.Hour }), queue("c", 1))
		c.end(time.Second, "b")
		c.at(2*time.Second, leaves("a"))
		c.ask(t, 3*time.Second, func(s workflows.GroupState) { require.Equal(t, []string{"c"}, names(s.Holders)) })
		c.at(time.Minute, leaves("c"))
		c.run(t)
	})

	t.Run("NothingFromOneThatLives", func(t *testing.T) {
		t.Parallel()
		c := newClub(t)
		c.at(0, queue("a", 1), queue("b", 1))
		c.ask(t, time.Hour, func(s workflows.GroupState) { require.Equal(t, []string{"a"}, names(s.Holders)) })
		c.at(2*time.Hour, leaves("a"), leaves("b"))
		c.run(t)
		require.Greater(t, c.looks, 100)
	})
}

// TestGroupTakesBackFromWhomNobodyWaitsFor: a group ends also where its last holder
// is gone and nobody asks for the slot.
func TestGroupTakesBackFromWhomNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	c := newClub(t)
	c.at(time.Second, queue("a", 1))
	c.end(2*time.Second, "a")
	s := c.run(t)
	require.Len(t, s.TakenBack, 1)
	require.Empty(t, s.Holders)
}

func TestGroupContinuesAsNew(t *testing.T) {
	t.Parallel()
	c := newClub(t)
	const messages, atOnce = 4000, 500
	c.at(0, queue("a", 1), queue("b", 1))
	for i := range messages / atOnce {
		c.at(time.Second+time.Duration(i)*time.Millisecond, make([]activities.SlotRequest, atOnce)...)
	}
	c.at(time.Second, queue("c", 1))
	c.ExecuteWorkflow(workflows.Group, activities.GroupInput{Tenant: "t", Project: "p", Name: "g"})
	require.True(t, c.IsWorkflowCompleted())
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, c.GetWorkflowError(), &again)
	var in activities.GroupInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &in))

	next := newClub(t)
	next.at(0, leaves("a"))
	next.at(time.Second, leaves("b"))
	next.at(2*time.Second, leaves("c"))
	next.ExecuteWorkflow(workflows.Group, in)
	require.True(t, next.IsWorkflowCompleted())
	require.NoError(t, next.GetWorkflowError())
	require.Equal(t, []string{"granted a"}, c.heard())
	require.Equal(t, []string{"granted b", "granted c"}, next.heard())
}

func TestGroupIsNotEndedByACancel(t *testing.T) {
	t.Parallel()
	c := newClub(t)
	c.at(0, queue("a", 1), queue("b", 1))
	c.RegisterDelayedCallback(c.CancelWorkflow, time.Second)
	c.at(2*time.Second, leaves("a"))
	c.at(3*time.Second, leaves("b"))
	c.run(t)
	require.Equal(t, []string{"granted a", "granted b"}, c.heard())
}
