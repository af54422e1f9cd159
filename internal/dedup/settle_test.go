package dedup_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"belay.run/internal/dedup"
	"belay.run/internal/run"
)

func TestRenewProlongs(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		v := b.claim(t, step("a"), dedup.Granted)
		b.pass(20 * time.Second)
		require.NoError(t, b.Renew(t.Context(), v.Record, 30*time.Second))
		b.pass(20 * time.Second)
		require.False(t, b.claim(t, step("b"), dedup.InFlight).Expired)
		b.pass(20 * time.Second)
		require.True(t, b.claim(t, step("b"), dedup.InFlight).Expired)
		require.NoError(t, b.Renew(t.Context(), v.Record, 30*time.Second), "late, but nobody took it")
		require.False(t, b.claim(t, step("b"), dedup.InFlight).Expired)
		require.NoError(t, b.Renew(t.Context(), v.Record, 0))
		require.Nil(t, b.claim(t, step("b"), dedup.InFlight).Record.Until)
	})
}

func TestOnlyTheOwnerChangesState(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		v := b.claim(t, by("a"), dedup.Granted)
		for _, h := range []dedup.Held{
			{Key: pipelineKey, Owner: owner("b"), Token: v.Record.Token},
			{Key: pipelineKey, Owner: dedup.Owner{RunKey: "a", Node: "x"}, Token: v.Record.Token},
			{Key: pipelineKey, Owner: owner("a"), Token: v.Record.Token - 1},
			{Key: pipelineKey, Owner: owner("a"), Token: v.Record.Token + 1},
			{Key: pipelineKey, Owner: owner("a")},
		} {
			require.ErrorIs(t, b.Settle(t.Context(), dedup.Settlement{Held: h, State: dedup.Failed}), dedup.ErrNotOwner)
			if h.Token <= v.Record.Token {
				other := dedup.Record{Key: h.Key, Owner: h.Owner, Token: h.Token, State: dedup.Running}
				require.ErrorIs(t, b.Renew(t.Context(), other, time.Minute), dedup.ErrNotOwner)
			}
		}
		r, err := b.Lookup(t.Context(), pipelineKey)
		require.NoError(t, err)
		require.Equal(t, v.Record, *r)
		for _, state := range []dedup.State{"", dedup.Running, dedup.Released, "done"} {
			require.ErrorContains(t, b.Settle(t.Context(), dedup.Settlement{Held: held(v.Record), State: state}), "no claim ends as")
		}
	})
}

func TestAnEndDoesNotChange(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		v := b.run(t, by("a"), dedup.Failed)
		b.settle(t, v, dedup.Failed) // the answer to the first was lost
		for _, state := range []dedup.State{dedup.Completed, dedup.Canceled} {
			s := dedup.Settlement{Held: held(v.Record), State: state, Window: time.Hour, Grant: &v.Record}
			require.ErrorIs(t, b.Settle(t.Context(), s), dedup.ErrNotOwner)
		}
		require.ErrorIs(t, b.Renew(t.Context(), v.Record, time.Minute), dedup.ErrNotOwner)
		b.claim(t, by("b"), dedup.Granted)
	})
}

func TestRecordsAreBounded(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		claim := by("a")
		claim.Request.Sender = strings.Repeat("ж", 1000)
		v := b.claim(t, claim, dedup.Granted)
		s := dedup.Settlement{Held: held(v.Record), State: dedup.Completed, Window: time.Hour, Result: dedup.Result{
			Summary: strings.Repeat("日", 5000), Cause: &run.Cause{Message: strings.Repeat("x", 5000)},
			Outputs: map[string]string{"x": strings.Repeat("x", dedup.MaxOutputs)},
		}}
		require.ErrorContains(t, b.Settle(t.Context(), s), "go to the store")
		s.Result.Outputs = map[string]string{"x": strings.Repeat("x", dedup.MaxOutputs-1)}
		require.NoError(t, b.Settle(t.Context(), s))
		require.Len(t, s.Result.Cause.Message, 5000, "the caller's is as it was")
		r, err := b.Lookup(t.Context(), pipelineKey)
		require.NoError(t, err)
		for text, most := range map[string]int{r.Result.Summary: dedup.MaxSummary, r.Result.Cause.Message: 1024, r.Request.Sender: 256} {
			require.LessOrEqual(t, len(text), most)
			require.Greater(t, len(text), most-6)
			require.True(t, utf8.ValidString(text))
		}
		require.Equal(t, s.Result.Outputs, r.Result.Outputs)
	})
}

func TestLostClaimsArePutBack(t *testing.T) {
	onACluster(t, func(t *testing.T, b *bundle) {
		t.Helper()
		claim := by("a")
		claim.Fingerprint, claim.Request.Sender = "f", "ann"
		v := b.claim(t, claim, dedup.Granted)
		lose := func() { require.NoError(t, b.rdb.FlushAll(t.Context()).Err()) }
		lose()
		require.NoError(t, b.Renew(t.Context(), v.Record, 0))
		r, err := b.Lookup(t.Context(), pipelineKey)
		require.NoError(t, err)
		require.Equal(t, v.Record, *r)
		redelivered := by("a'")
		redelivered.Request = claim.Request
		b.claim(t, redelivered, dedup.InFlight)

		lose()
		require.NoError(t, b.Settle(t.Context(), dedup.Settlement{Held: held(v.Record), State: dedup.Completed, Window: time.Hour, Grant: &v.Record}))
		d := b.claim(t, by("b"), dedup.Duplicate)
		require.Equal(t, claim.Request, d.Record.Request)
		require.True(t, d.Record.ClaimedAt.Equal(v.Record.ClaimedAt))
		b.pass(time.Hour)
		b.claim(t, redelivered, dedup.Redelivered)

		lose() // and nothing is known but who holds it
		require.NoError(t, b.Settle(t.Context(), dedup.Settlement{Held: held(v.Record), State: dedup.Completed, Window: time.Hour}))
		require.Equal(t, owner("a"), b.claim(t, by("b"), dedup.Duplicate).Record.Owner)

		lose() // and another was quicker
		next := b.claim(t, by("b"), dedup.Granted)
		require.Greater(t, next.Record.Token, v.Record.Token, "also with no memory of the former")
		require.ErrorIs(t, b.Renew(t.Context(), v.Record, 0), dedup.ErrNotOwner)
		require.ErrorIs(t, b.Settle(t.Context(), dedup.Settlement{Held: held(v.Record), State: dedup.Failed, Grant: &v.Record}), dedup.ErrNotOwner)
	})
}

func TestThePresentOwnerWinsOverFormerOnes(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		first := b.claim(t, step("a"), dedup.Granted)
		taker := step("b")
		taker.Dead = first.Record.Token
		second := b.claim(t, taker, dedup.Granted)
		require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
		// The first, which was taken for dead, is the first to come back.
		require.NoError(t, b.Renew(t.Context(), first.Record, time.Minute))
		require.NoError(t, b.Renew(t.Context(), second.Record, time.Minute))
		require.ErrorIs(t, b.Renew(t.Context(), first.Record, time.Minute), dedup.ErrNotOwner)
		s := dedup.Settlement{Held: held(first.Record), State: dedup.Completed, Grant: &first.Record}
		require.ErrorIs(t, b.Settle(t.Context(), s), dedup.ErrNotOwner)
		b.settle(t, second, dedup.Completed)
	})
}

func TestFailoverToAReplicaThatMissedTheGrant(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		b.run(t, step("a"), dedup.Failed)
		old := b.rdb.HGetAll(t.Context(), b.rdb.Keys(t.Context(), "belay:claim:{*}").Val()[0]).Val()
		second := b.claim(t, step("b"), dedup.Granted)
		key := b.rdb.Keys(t.Context(), "belay:claim:{*}").Val()[0]
		for name, value := range old {
			require.NoError(t, b.rdb.HSet(t.Context(), key, name, value).Err())
		}
		require.ErrorIs(t, b.Settle(t.Context(), dedup.Settlement{Held: held(second.Record), State: dedup.Completed}), dedup.ErrNotOwner)
		s := dedup.Settlement{Held: held(second.Record), State: dedup.Completed, Window: time.Hour, Grant: &second.Record}
		require.NoError(t, b.Settle(t.Context(), s))
		require.Equal(t, 1, b.claim(t, step("c"), dedup.Duplicate).Record.Generation)
	})
}

func TestReleaseByOperator(t *testing.T) {
	onACluster(t, func(t *testing.T, b *bundle) {
		t.Helper()
		r, err := b.ReleaseByOperator(t.Context(), pipelineKey)
		require.NoError(t, err)
		require.Nil(t, r, "there is nothing")

		v := b.claim(t, by("a"), dedup.Granted)
		r, err = b.ReleaseByOperator(t.Context(), pipelineKey)
		require.NoError(t, err)
		require.Equal(t, v.Record, *r)
		r, err = b.ReleaseByOperator(t.Context(), pipelineKey)
		require.NoError(t, err)
		require.Nil(t, r, "nothing is left to release")
		r, err = b.Lookup(t.Context(), pipelineKey)
		require.NoError(t, err)
		require.Nil(t, r)

		require.ErrorIs(t, b.Renew(t.Context(), v.Record, time.Minute), dedup.ErrNotOwner, "it does not come back")
		s := dedup.Settlement{Held: held(v.Record), State: dedup.Completed, Window: time.Hour, Grant: &v.Record}
		require.ErrorIs(t, b.Settle(t.Context(), s), dedup.ErrNotOwner)
		redelivered := by("a'")
		redelivered.Request = by("a").Request
		require.Equal(t, dedup.Released, b.claim(t, redelivered, dedup.Redelivered).Record.State)

		next := b.claim(t, by("b"), dedup.Granted)
		require.Equal(t, 1, next.Record.Generation)
		require.Greater(t, next.Record.Token, v.Record.Token)
		_, err = b.ReleaseByOperator(t.Context(), dedup.Key{})
		require.Error(t, err)
	})
}

func TestReleaseOfAnEnd(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		raced := by("c")
		raced.Request.At = b.now(t)
		b.pass(time.Millisecond)
		b.run(t, by("a"), dedup.Completed)
		r, err := b.ReleaseByOperator(t.Context(), pipelineKey)
		require.NoError(t, err)
		require.Equal(t, dedup.Completed, r.State)
		b.run(t, by("b"), dedup.Failed)
		b.claim(t, raced, dedup.Late)
		r, err = b.ReleaseByOperator(t.Context(), pipelineKey)
		require.NoError(t, err)
		require.Equal(t, dedup.Failed, r.State)
		b.claim(t, raced, dedup.Granted)
	})
}
