package dedup_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/dedup"
)

func TestOneRunsAndOthersDoNot(t *testing.T) {
	onACluster(t, func(t *testing.T, b *bundle) {
		t.Helper()
		claim := by("a")
		claim.Fingerprint, claim.Request.Sender, claim.Request.At = "f", "ann", b.now(t)
		first := b.claim(t, claim, dedup.Granted)
		require.Equal(t, dedup.Running, first.Record.State)
		require.Positive(t, first.Record.Token)
		require.Zero(t, first.Record.Generation)
		require.Nil(t, first.Record.Until)
		require.WithinDuration(t, b.now(t), first.Record.ClaimedAt, time.Minute)

		blocked := b.claim(t, by("b"), dedup.InFlight)
		require.Equal(t, first.Record, blocked.Record)
		require.False(t, blocked.Expired)
		b.pass(30 * 24 * time.Hour)
		b.claim(t, by("b"), dedup.InFlight) // time takes nothing away

		result := dedup.Result{Status: "succeeded", ExitCode: new(0), Summary: "done", Outputs: map[string]string{"digest": "1"}}
		require.NoError(t, b.Settle(t.Context(), dedup.Settlement{Held: held(first.Record), State: dedup.Completed, Window: time.Hour, Result: result}))
		done := b.claim(t, by("b"), dedup.Duplicate)
		require.Equal(t, result, done.Record.Result)
		require.Equal(t, claim.Request, done.Record.Request)
		require.Equal(t, time.Hour, done.Record.Until.Sub(*done.Record.EndedAt))

		b.pass(59 * time.Minute)
		b.claim(t, by("b"), dedup.Duplicate)
		b.pass(time.Minute)
		next := b.claim(t, by("b"), dedup.Granted)
		require.Greater(t, next.Record.Token, first.Record.Token)
		require.Equal(t, 1, next.Record.Generation)
		require.NotEqual(t, dedup.IdempotencyKey(first.Record), dedup.IdempotencyKey(next.Record))
		looked, err := b.Lookup(t.Context(), pipelineKey)
		require.NoError(t, err)
		require.Equal(t, next.Record, *looked, "nothing of the former run is left")
		for _, key := range b.rdb.Keys(t.Context(), "belay:claim:{*}").Val() {
			require.Negative(t, b.rdb.TTL(t.Context(), key).Val(), "one that runs does not expire")
		}
	})
}

func TestSameOwner(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		first := b.claim(t, step("a"), dedup.Granted)
		b.pass(time.Minute) // beyond its lease
		second := b.claim(t, step("a"), dedup.Resumed)
		require.Greater(t, second.Record.Token, first.Record.Token)
		require.True(t, second.Record.Until.After(b.now(t)))
		require.Equal(t, dedup.IdempotencyKey(first.Record), dedup.IdempotencyKey(second.Record))
		require.ErrorIs(t, b.Renew(t.Context(), first.Record, time.Minute), dedup.ErrNotOwner, "an earlier attempt")

		other := step("a")
		other.Owner.Node = "build/other"
		b.claim(t, other, dedup.InFlight)
		result := dedup.Result{Outputs: map[string]string{"x": "1"}}
		require.NoError(t, b.Settle(t.Context(), dedup.Settlement{Held: held(second.Record), State: dedup.Completed, Result: result}))
		b.pass(time.Hour)
		require.Equal(t, result, b.claim(t, step("a"), dedup.Done).Record.Result)

		reset := by("b") // after its failure: its request is none of a racer
		reset.Request.At = b.now(t)
		b.run(t, reset, dedup.Failed)
		retried := b.claim(t, reset, dedup.Granted)
		require.Equal(t, 1, retried.Record.Generation)
	})
}

func TestOwnResultOutlivesOthersRuns(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		b.run(t, by("a"), dedup.Completed)
		b.pass(time.Hour)
		b.run(t, by("b"), dedup.Failed)
		require.Equal(t, owner("a"), b.claim(t, by("a"), dedup.Done).Record.Owner)
	})
}

func TestMeantOrRaced(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		for _, end := range []dedup.State{dedup.Failed, dedup.Canceled} {
			before := b.now(t)
			b.run(t, by("a"+string(end)), end)
			looked, err := b.Lookup(t.Context(), pipelineKey)
			require.NoError(t, err)
			require.Equal(t, end, looked.State)

			raced := by("raced")
			for _, at := range []time.Time{before, *looked.EndedAt} {
				raced.Request.At = at
				require.Equal(t, *looked, b.claim(t, raced, dedup.Late).Record)
			}
			meant := by("meant" + string(end))
			meant.Request.At = looked.EndedAt.Add(time.Microsecond)
			b.run(t, meant, dedup.Failed)
		}
		b.run(t, by("without a time"), dedup.Failed)
		b.pass(time.Hour)
		looked, err := b.Lookup(t.Context(), pipelineKey)
		require.NoError(t, err)
		require.Nil(t, looked, "it answers nobody any more")
		old := by("old")
		old.Request.At = b.now(t).Add(-2 * time.Hour)
		b.claim(t, old, dedup.Granted)
	})
}

func TestStepThatWaitedIsNeverLate(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		waiting := step("b")
		waiting.Request.At = b.now(t)
		b.run(t, step("a"), dedup.Failed)
		b.claim(t, waiting, dedup.Granted)
	})
}

func TestRequestMeansItsRun(t *testing.T) {
	onACluster(t, func(t *testing.T, b *bundle) {
		t.Helper()
		redelivered := by("a'")
		redelivered.Request = by("a").Request
		redelivered.Rerun = true // even so

		first := b.claim(t, by("a"), dedup.Granted)
		b.claim(t, redelivered, dedup.InFlight)
		b.settle(t, first, dedup.Failed)
		v := b.claim(t, redelivered, dedup.Redelivered)
		require.Equal(t, dedup.Failed, v.Record.State)
		require.Equal(t, owner("a"), v.Record.Owner)

		second := b.claim(t, by("b"), dedup.Granted)
		require.Equal(t, owner("a"), b.claim(t, redelivered, dedup.Redelivered).Record.Owner)
		b.settle(t, second, dedup.Completed)
		require.Equal(t, owner("a"), b.claim(t, redelivered, dedup.Redelivered).Record.Owner)
		again := by("b'")
		again.Request = by("b").Request
		b.claim(t, again, dedup.Duplicate)
		b.pass(time.Hour)
		require.Equal(t, owner("b"), b.claim(t, again, dedup.Redelivered).Record.Owner)

		for id, run := range map[string]string{"request of a": "a", "request of b": "b"} {
			r, err := b.LookupRequest(t.Context(), pipelineKey, id)
			require.NoError(t, err)
			require.Equal(t, owner(run), r.Owner)
		}
		for _, id := range []string{"", "request of c"} {
			r, err := b.LookupRequest(t.Context(), pipelineKey, id)
			require.NoError(t, err)
			require.Nil(t, r)
		}
	})
}

func TestRequestIDsOfAllKinds(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		ids := []string{"}", "{", "a/b", "%2F", "/", "a%2Fb", strings.Repeat("x", 1000), strings.Repeat("x", 1000) + "y", "h/1"}
		for i, id := range ids {
			claim := by("run " + id)
			claim.Key.Name = "k"
			claim.Request.ID = id
			b.run(t, claim, dedup.Failed)
			r, err := b.LookupRequest(t.Context(), claim.Key, id)
			require.NoError(t, err)
			require.Equal(t, i, r.Generation)
			require.Equal(t, id, r.Request.ID)
		}
		claim := by("a")
		claim.Request.ID = strings.Repeat("x", 2000)
		_, err := b.Claim(t.Context(), claim)
		require.ErrorContains(t, err, "at most 1024 bytes")
	})
}

func TestRerun(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		rerun := by("b")
		rerun.Rerun, rerun.Request.At = true, b.now(t)
		first := b.claim(t, by("a"), dedup.Granted)
		b.claim(t, rerun, dedup.InFlight)
		b.settle(t, first, dedup.Completed)
		b.claim(t, rerun, dedup.Duplicate) // it was asked for before there was anything to repeat

		b.pass(time.Millisecond)
		rerun.Request.At = b.now(t)
		second := b.claim(t, rerun, dedup.Granted)
		require.Equal(t, 1, second.Record.Generation)
		require.Greater(t, second.Record.Token, first.Record.Token)
		require.ErrorIs(t, b.Settle(t.Context(), dedup.Settlement{Held: held(first.Record), State: dedup.Completed}), dedup.ErrNotOwner)
		b.claim(t, rerun, dedup.Resumed)
	})
}

func TestTakeover(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		first := b.claim(t, step("a"), dedup.Granted)
		b.pass(31 * time.Second)
		require.True(t, b.claim(t, step("b"), dedup.InFlight).Expired)
		taker := step("b")
		taker.Dead = first.Record.Token - 1
		b.claim(t, taker, dedup.InFlight) // not the one that was proved dead

		taker.Dead = first.Record.Token
		second := b.claim(t, taker, dedup.Granted)
		require.Greater(t, second.Record.Token, first.Record.Token)
		require.Equal(t, dedup.IdempotencyKey(first.Record), dedup.IdempotencyKey(second.Record))

		// The first wakes up.
		require.ErrorIs(t, b.Renew(t.Context(), first.Record, time.Minute), dedup.ErrNotOwner)
		settlement := dedup.Settlement{Held: held(first.Record), State: dedup.Completed, Grant: &first.Record}
		require.ErrorIs(t, b.Settle(t.Context(), settlement), dedup.ErrNotOwner)
		b.claim(t, step("a"), dedup.InFlight)
		third := step("c")
		third.Dead = first.Record.Token
		b.claim(t, third, dedup.InFlight) // one of two takers comes second
		b.settle(t, second, dedup.Completed)
	})
}

// TestSettledForADeadOwner: who comes then is as well off as who takes over.
func TestSettledForADeadOwner(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		waiting := by("b")
		waiting.Request.At = b.now(t)
		first := b.claim(t, by("a"), dedup.Granted)
		b.claim(t, waiting, dedup.InFlight)
		require.NoError(t, b.Settle(t.Context(), dedup.Settlement{Held: held(first.Record), State: dedup.Canceled, Died: true}))
		r, err := b.Lookup(t.Context(), first.Record.Key)
		require.NoError(t, err)
		require.Nil(t, r, "it answers nobody")
		second := b.claim(t, waiting, dedup.Granted)
		require.Greater(t, second.Record.Token, first.Record.Token)
		require.Equal(t, dedup.IdempotencyKey(first.Record), dedup.IdempotencyKey(second.Record))
		b.settle(t, second, dedup.Failed)
		third := b.claim(t, by("c"), dedup.Granted)
		require.NotEqual(t, dedup.IdempotencyKey(second.Record), dedup.IdempotencyKey(third.Record))
	})
}

func TestRedeliveryOfADeadRun(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		first := b.claim(t, by("a"), dedup.Granted)
		redelivered := by("a'")
		redelivered.Request, redelivered.Dead = by("a").Request, first.Record.Token
		v := b.claim(t, redelivered, dedup.Redelivered)
		require.Equal(t, dedup.Canceled, v.Record.State)
		b.claim(t, by("b"), dedup.Granted) // and nobody is blocked by the dead
	})
}

func TestRequestOfATakenOverRun(t *testing.T) {
	onACluster(t, func(t *testing.T, b *bundle) {
		t.Helper()
		first := b.claim(t, by("a"), dedup.Granted)
		taker := by("b")
		taker.Dead = first.Record.Token
		b.settle(t, b.claim(t, taker, dedup.Granted), dedup.Completed)
		redelivered := by("a'")
		redelivered.Request = by("a").Request
		v := b.claim(t, redelivered, dedup.Redelivered)
		require.Equal(t, owner("a"), v.Record.Owner)
		require.Equal(t, dedup.Canceled, v.Record.State)
	})
}

func TestMismatch(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		claim := func(run, inputs string) dedup.Claim {
			c := by(run)
			c.Fingerprint = inputs
			return c
		}
		first := b.claim(t, claim("a", "1"), dedup.Granted)
		require.True(t, b.claim(t, claim("b", "2"), dedup.InFlight).Mismatch)
		require.False(t, b.claim(t, claim("b", "1"), dedup.InFlight).Mismatch)
		require.False(t, b.claim(t, claim("b", ""), dedup.InFlight).Mismatch)
		b.settle(t, first, dedup.Completed)
		require.True(t, b.claim(t, claim("b", "2"), dedup.Duplicate).Mismatch)
	})
}

func TestKeySpaces(t *testing.T) {
	onACluster(t, func(t *testing.T, b *bundle) {
		t.Helper()
		long := strings.Repeat("x", dedup.MaxKey-1)
		keys := []dedup.Key{
			pipelineKey, stepKey,
			{Tenant: "other", Project: "web", Pipeline: "deploy", Name: "shop-v1"},
			{Tenant: "acme", Project: "other", Pipeline: "deploy", Name: "shop-v1"},
			{Tenant: "acme", Project: "web", Pipeline: "other", Name: "shop-v1"},
			{Tenant: "acme/web", Project: "", Pipeline: "deploy", Name: "shop-v1"},
			{Tenant: "acme", Project: "web", Name: "deploy/shop-v1"},
			{Tenant: "acme", Project: "web", Name: "}{"},
			{Tenant: "acme", Project: "web", Name: "%7D{"},
			{Tenant: "acme", Project: "web", Name: "日本語 ключ\x00\n"},
			{Tenant: "acme", Project: "web", Name: long + "1"},
			{Tenant: "acme", Project: "web", Name: long + "2"},
		}
		prints := map[string]bool{}
		for _, key := range keys {
			claim := by("a")
			claim.Key = key
			v := b.claim(t, claim, dedup.Granted)
			prints[dedup.IdempotencyKey(v.Record)] = true
			r, err := b.Lookup(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, v.Record, *r)
		}
		require.Len(t, prints, len(keys))

		found := map[dedup.Key]bool{}
		for r, err := range b.Running(t.Context()) {
			require.NoError(t, err)
			found[r.Key] = true
		}
		require.Len(t, found, len(keys))

		for _, name := range []string{"", long + "12"} {
			claim := by("a")
			claim.Key.Name = name
			_, err := b.Claim(t.Context(), claim)
			require.ErrorContains(t, err, "key")
			_, err = b.Lookup(t.Context(), claim.Key)
			require.Error(t, err)
		}
	})
}

func TestAClaimNeedsAnOwner(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		_, err := b.Claim(t.Context(), dedup.Claim{Key: pipelineKey})
		require.ErrorContains(t, err, "owner")
	})
}
