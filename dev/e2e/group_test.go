package e2e_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"belay.run/activities"
	"belay.run/dev/e2e"
	"belay.run/internal/run"
)

// TestGroupInOrderOfArrival: who asks first is first, at any depth.
func TestGroupInOrderOfArrival(t *testing.T) {
	t.Parallel()
	c := newContest(t, shared.Get(t))
	first := c.start(contention{Number: 0, Limit: 1})
	c.waitQueue(1, 0)
	const depth = 40
	var all []client.WorkflowRun
	for i := 1; i <= depth; i++ {
		all = append(all, c.start(contention{Number: i, Limit: 1, Hold: time.Millisecond}))
		c.waitQueue(1, i)
	}
	c.cancel(first)
	for _, r := range all {
		require.NoError(t, r.Get(t.Context(), nil))
	}
	want := make([]int, depth+1)
	for i := range want {
		want[i] = i
	}
	require.Equal(t, want, c.order)
	require.Equal(t, 1, c.most)
	c.waitQueue(0, 0)
}

// TestGroupOfManyContenders: two hundred contenders for two slots, a fifth of
// which is cancelled at random times and some of which are terminated. Never
// more than two hold a slot, never fewer while somebody waits, and all who are
// left alone get theirs.
func TestGroupOfManyContenders(t *testing.T) {
	t.Parallel()
	c := newContest(t, shared.Get(t))
	const contenders, limit = 200, 2
	rng := rand.New(rand.NewPCG(1, 2))
	all := make([]client.WorkflowRun, contenders)
	for i := range all {
		all[i] = c.start(contention{Number: i, Limit: limit, Hold: 20 * time.Millisecond})
	}
	touched := map[int]bool{}
	for range contenders / 5 {
		i := rng.IntN(contenders)
		touched[i] = true
		if rng.IntN(4) == 0 {
			c.terminate(i, all[i])
		} else {
			c.cancel(all[i])
		}
		if s := c.state(); s.Waiting > 0 {
			require.Len(t, s.Holders, limit, "a free slot while somebody waits")
		}
	}
	for i, r := range all {
		err := r.Get(t.Context(), nil)
		if !touched[i] {
			require.NoError(t, err, "contender %d", i)
		}
	}
	require.Equal(t, limit, c.most)
	c.waitQueue(0, 0)
	replayed(t, c.env, run.GroupID("t", "p", c.group), "")
}

// TestGroupSurvivesItsOwnEnd: a group closes when it has had no members for a
// while. Whoever comes just then gets a slot all the same.
func TestGroupSurvivesItsOwnEnd(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	for i := range 20 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			c := newContest(t, env)
			require.NoError(t, c.start(contention{Number: 0, Limit: 1, Hold: time.Millisecond}).Get(t.Context(), nil))
			// The timer of the group runs out at about this time.
			timer := time.NewTimer(5*time.Second - 60*time.Millisecond + time.Duration(i)*8*time.Millisecond)
			select {
			case <-timer.C:
			case <-t.Context().Done():
			}
			require.NoError(t, c.start(contention{Number: 1, Limit: 1, Hold: time.Millisecond}).Get(t.Context(), nil))
			require.Equal(t, []int{0, 1}, c.order)
			c.waitClosed()
		})
	}
}

// TestGroupGoesOnInANewRun: past some thousand messages a group begins a new run
// of its workflow, with all its members in their places.
func TestGroupGoesOnInANewRun(t *testing.T) {
	t.Parallel()
	c := newContest(t, shared.Get(t))
	id := run.GroupID("t", "p", c.group)
	holder := c.start(contention{Number: 0, Limit: 1})
	c.waitQueue(1, 0)
	var all []client.WorkflowRun
	for i := 1; i <= 5; i++ {
		all = append(all, c.start(contention{Number: i, Limit: 1, Hold: time.Millisecond}))
		c.waitQueue(1, i)
	}
	var senders errgroup.Group
	for range 4 {
		senders.Go(func() error {
			for range 1000 {
				// Of nobody, and so without any other effect.
				err := c.env.Temporal.Client().SignalWorkflow(t.Context(), id, "", activities.SlotSignal, activities.SlotRequest{})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, senders.Wait())
	require.Eventually(t, func() bool {
		resp, err := c.env.Temporal.Client().DescribeWorkflowExecution(t.Context(), id, "")
		info := resp.GetWorkflowExecutionInfo()
		return err == nil && info.GetExecution().GetRunId() != info.GetFirstRunId()
	}, e2e.Patience, 50*time.Millisecond, "a new run")
	c.waitQueue(1, 5)
	c.cancel(holder)
	for _, r := range all {
		require.NoError(t, r.Get(t.Context(), nil))
	}
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, c.order)
	require.Equal(t, 1, c.most)
}

// TestGroupFreesNoSlotTooMany is kestra-io/kestra#13211: with two running and
// four waiting, one of each is cancelled at once.
func TestGroupFreesNoSlotTooMany(t *testing.T) {
	t.Parallel()
	c := newContest(t, shared.Get(t))
	var all []client.WorkflowRun
	for i := range 6 {
		all = append(all, c.start(contention{Number: i, Limit: 2}))
		c.waitQueue(min(i+1, 2), max(i-1, 0))
	}
	c.cancel(all[0])
	c.cancel(all[3])
	c.waitQueue(2, 2)
	c.waitInside(1, 2)
	c.cancel(all[1])
	c.waitInside(2, 4)
	c.cancel(all[2])
	c.waitInside(4, 5)
	c.cancel(all[4])
	c.cancel(all[5])
	c.waitQueue(0, 0)
	require.Equal(t, 2, c.most)
	require.Equal(t, []int{0, 1, 2, 4, 5}, c.order)
	c.waitClosed()
	one(t, c.env, "group_queue", run.GroupID("t", "p", c.group), "")
}

// TestGroupKeepsItsSlots is argoproj/argo-workflows#7633: after hundreds of
// contenders that were started and cancelled, both slots are there.
func TestGroupKeepsItsSlots(t *testing.T) {
	t.Parallel()
	c := newContest(t, shared.Get(t))
	const cycles = 500
	rng := rand.New(rand.NewPCG(3, 4))
	var open []client.WorkflowRun
	for i := range cycles {
		open = append(open, c.start(contention{Number: i, Limit: 2}))
		if len(open) < 8 {
			continue
		}
		k := rng.IntN(len(open))
		c.cancel(open[k])
		open = slices.Delete(open, k, k+1)
	}
	for _, r := range open {
		c.cancel(r)
	}
	c.waitQueue(0, 0)
	require.LessOrEqual(t, c.most, 2)
	c.start(contention{Number: cycles, Limit: 2})
	c.start(contention{Number: cycles + 1, Limit: 2})
	c.waitInside(cycles, cycles+1)
}

// TestGroupNewestReplacesTheOthers: of a burst with cancel_running only the
// newest is left, and at no time do two of them run.
func TestGroupNewestReplacesTheOthers(t *testing.T) {
	t.Parallel()
	c := newContest(t, shared.Get(t))
	const burst = 50
	var all []client.WorkflowRun
	for i := range burst {
		all = append(all, c.start(contention{Number: i, Limit: 1, OnFull: "cancel_running"}))
	}
	// Which is the newest the order of arrival says, not that of the starts: in
	// the end all others have been cancelled.
	open := map[string]client.WorkflowRun{}
	for _, r := range all {
		open[r.GetID()] = r
	}
	require.Eventually(t, func() bool {
		for id, r := range open {
			if c.closed(r) {
				delete(open, id)
			}
		}
		return len(open) == 1
	}, e2e.Patience, 50*time.Millisecond, "one is left")
	last := c.waitQueue(1, 0).Holders[0].Owner.WorkflowID
	require.Contains(t, open, last)
	for _, r := range all {
		if r.GetID() != last {
			var canceled *temporal.CanceledError
			require.ErrorAs(t, r.Get(t.Context(), nil), &canceled)
		}
	}
	require.Equal(t, 1, c.most)
	replayed(t, c.env, run.GroupID("t", "p", c.group), "")
}

// TestGroupTakesSlotsBack: a holder that is terminated loses its slot to those
// who wait, which is recorded with its name.
func TestGroupTakesSlotsBack(t *testing.T) {
	t.Parallel()
	c := newContest(t, shared.Get(t))
	holder := c.start(contention{Number: 0, Limit: 1})
	c.waitQueue(1, 0)
	c.start(contention{Number: 1, Limit: 1})
	c.waitQueue(1, 1)
	c.terminate(0, holder)
	c.waitInside(1)
	require.Equal(t, holder.GetID(), c.state().TakenBack[0].Owner.WorkflowID)
	one(t, c.env, "group_taken_back", run.GroupID("t", "p", c.group), "")
}

// TestGroupRefuses: with reject nobody waits, and a holder that is gone refuses
// nobody.
func TestGroupRefuses(t *testing.T) {
	t.Parallel()
	c := newContest(t, shared.Get(t))
	holder := c.start(contention{Number: 0, Limit: 1})
	c.waitQueue(1, 0)
	var got string
	require.NoError(t, c.start(contention{Number: 1, Limit: 1, OnFull: "reject"}).Get(t.Context(), &got))
	require.Equal(t, "refused", got)
	c.terminate(0, holder)
	require.NoError(t, c.start(contention{Number: 2, Limit: 1, OnFull: "reject", Hold: time.Millisecond}).Get(t.Context(), &got))
	require.Equal(t, "granted", got)
}
