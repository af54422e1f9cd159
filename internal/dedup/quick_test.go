package dedup_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/dedup"
)

// plain are claims of so many keys by steps that no request named.
func plain(run string, n int) []dedup.Claim {
	claims := many(run, n)
	for i := range claims {
		claims[i].Request, claims[i].Lease = dedup.Request{}, 30*time.Second
	}
	return claims
}

// claimed claims a batch of which all are granted.
func (b *bundle) claimed(t testing.TB, claims []dedup.Claim) []dedup.Verdict {
	t.Helper()
	verdicts, err := b.ClaimBatch(t.Context(), claims)
	require.NoError(t, err)
	for _, v := range verdicts {
		require.Equal(t, dedup.Granted, v.Decision)
	}
	return verdicts
}

// TestSettleBatch holds a batch to what each settlement comes to alone.
func TestSettleBatch(t *testing.T) {
	onACluster(t, func(t *testing.T, b *bundle) {
		t.Helper()
		claims := plain("a", 7)
		claims[2].Request.ID = "asked for"
		verdicts := b.claimed(t, claims)
		batch := make([]dedup.Settlement, len(verdicts))
		for i := range verdicts {
			r := &verdicts[i].Record
			batch[i] = dedup.Settlement{Held: held(*r), State: dedup.Completed, Window: time.Hour, Grant: r, Result: dedup.Result{Summary: "done"}}
		}
		batch[1].State = dedup.Failed
		batch[3].Grant = nil
		batch[4].Token--
		batch[5].Result.Outputs = map[string]string{"x": strings.Repeat("x", dedup.MaxOutputs)}
		batch[6].State = dedup.Running
		for range 2 { // the second repeats the first, whose answer was lost
			errs, err := b.SettleBatch(t.Context(), batch)
			require.NoError(t, err)
			for i := range 4 {
				require.NoError(t, errs[i], i)
			}
			require.ErrorIs(t, errs[4], dedup.ErrNotOwner)
			require.ErrorContains(t, errs[5], "go to the store")
			require.ErrorContains(t, errs[6], "no claim ends as")
			require.NoError(t, b.rdb.ScriptFlush(t.Context()).Err())
		}
		alone := b.claim(t, step("a"), dedup.Granted)
		s := batch[0]
		s.Held, s.Grant = held(alone.Record), &alone.Record
		require.NoError(t, b.Settle(t.Context(), s))
		like, err := b.Lookup(t.Context(), stepKey)
		require.NoError(t, err)
		for i, want := range []dedup.State{dedup.Completed, dedup.Failed, dedup.Completed, dedup.Completed, dedup.Running, dedup.Running, dedup.Running} {
			r, err := b.Lookup(t.Context(), claims[i].Key)
			require.NoError(t, err)
			require.Equal(t, want, r.State, i)
			if want == dedup.Completed {
				require.Equal(t, like.Result, r.Result)
				require.Equal(t, time.Hour, r.Until.Sub(*r.EndedAt))
			}
		}
		errs, err := b.SettleBatch(t.Context(), []dedup.Settlement{{Held: batch[0].Held, State: dedup.Failed, Grant: batch[0].Grant}})
		require.NoError(t, err)
		require.ErrorIs(t, errs[0], dedup.ErrNotOwner, "an end does not change")
	})
}

// TestSettleBatchOfWhatWasGrantedAnew holds that one that has another before it, or
// that Redis has lost, ends as well.
func TestSettleBatchOfWhatWasGrantedAnew(t *testing.T) {
	onEachRedis(t, func(t *testing.T, b *bundle) {
		t.Helper()
		settle := func(v dedup.Verdict) dedup.Record {
			errs, err := b.SettleBatch(t.Context(), []dedup.Settlement{{Held: held(v.Record), State: dedup.Completed, Window: time.Hour, Grant: &v.Record}})
			require.NoError(t, err)
			require.NoError(t, errs[0])
			return b.claim(t, step("other"), dedup.Duplicate).Record
		}
		settle(b.claim(t, step("a"), dedup.Granted))
		b.pass(time.Hour)
		second := b.claimed(t, []dedup.Claim{step("b")})[0]
		require.Equal(t, 1, second.Record.Generation)
		require.Equal(t, 1, settle(second).Generation)

		require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
		third := b.claim(t, step("c"), dedup.Granted)
		require.NoError(t, b.rdb.FlushAll(t.Context()).Err())
		require.Equal(t, third.Record.Token, settle(third).Token)
	})
}

// TestTheTierKeepsABatchAsRedisDoes holds that who settled a batch knows of it what
// others are told.
func TestTheTierKeepsABatchAsRedisDoes(t *testing.T) {
	inBubble(t, func(t *testing.T, a, b *bundle) {
		t.Helper()
		claim := step("a")
		claim.Fingerprint, claim.Request.Sender = "f", strings.Repeat("ж", 1000)
		v := a.claimed(t, []dedup.Claim{claim})[0]
		outputs := map[string]string{"x": "1"}
		errs, err := a.SettleBatch(t.Context(), []dedup.Settlement{{
			Held: held(v.Record), State: dedup.Completed, Window: time.Hour + time.Nanosecond, Grant: &v.Record,
			Result: dedup.Result{Summary: strings.Repeat("日", 5000), Outputs: outputs},
		}})
		require.NoError(t, err)
		require.NoError(t, errs[0])
		outputs["x"] = "the caller's"
		near := a.claim(t, step("b"), dedup.Duplicate)
		require.True(t, near.Local)
		far := b.claim(t, step("b"), dedup.Duplicate)
		require.False(t, far.Local)
		require.Equal(t, far.Record, near.Record)
	})
}
