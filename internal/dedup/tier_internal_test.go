package dedup

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// completed is a claim that blocks for an hour by a clock of Redis.
func completed(name string, now time.Time) stored {
	until := now.Add(time.Hour)
	return stored{only: true, Record: Record{
		Key: Key{Tenant: "acme", Project: "web", Pipeline: "deploy", Name: name}, State: Completed,
		Owner: Owner{RunKey: "a"}, Request: Request{ID: "1"}, Until: &until,
	}}
}

// hearing is a tier that may answer.
func hearing(t testing.TB) *tier {
	t.Helper()
	tier, err := newTier(nil)
	require.NoError(t, err)
	tier.proved(tier.clock())
	return tier
}

// answers reports whether the tier blocks another under the key of r.
func (t *tier) answers(r stored) bool {
	v, ok := t.answer(&Claim{Key: r.Key, Owner: Owner{RunKey: "b"}})
	return ok && v.Decision == Duplicate
}

// pass lets the time of a bubble pass, which takes none.
func pass(d time.Duration) { time.Sleep(d) }

func TestWindowsEndByNobodysClock(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-26 * time.Hour, 0, 26 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			tier := hearing(t)
			now := time.Now().Add(skew) // as Redis sees it
			r := completed("k", now)
			q := tier.ask()
			pass(time.Second) // the answer takes a while
			tier.proved(tier.clock())
			tier.keep(q, r, now)
			require.True(t, tier.answers(r))
			pass(time.Hour - time.Second - time.Nanosecond)
			tier.proved(tier.clock())
			require.True(t, tier.answers(r))
			pass(time.Nanosecond)
			require.False(t, tier.answers(r), "counted from the question")
		})
	}
}

func TestAMachineThatSleptAnswersNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tier := hearing(t)
		r := completed("k", time.Now())
		tier.keep(tier.ask(), r, time.Now())
		require.True(t, tier.answers(r))
		// The steady clock stood still for an hour, the other did not.
		steady, wall := tier.clock()
		tier.proved(steady, wall-int64(time.Hour))
		require.False(t, tier.answers(r))
		// And it was set back: the steady one says more.
		pass(2 * time.Second)
		steady, wall = tier.clock()
		tier.proved(steady-int64(2*time.Second), wall+int64(time.Hour))
		require.False(t, tier.answers(r))
	})
}

func TestAnAnswerThatAnAnnouncementOvertookIsNotKept(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*tier, Key){
		"announced": func(t *tier, key Key) { t.forget(key) },
		"deaf":      func(t *tier, _ Key) { t.off(); t.proved(t.clock()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tier := hearing(t)
			r := completed("k", time.Now())
			q := tier.ask()
			change(tier, r.Key)
			tier.keep(q, r, time.Now())
			require.False(t, tier.answers(r))
			tier.keep(tier.ask(), r, time.Now())
			require.True(t, tier.answers(r))
			change(tier, r.Key)
			require.False(t, tier.answers(r))
		})
	}
}

// Between the answer and the subscription a release may have gone unheard.
func TestAnAnswerFromBeforeTheTierHeardIsNotKept(t *testing.T) {
	t.Parallel()
	tier, err := newTier(nil)
	require.NoError(t, err)
	r := completed("k", time.Now())
	for range 2 { // before the first subscription, and between two
		q := tier.ask()
		tier.proved(tier.clock())
		tier.keep(q, r, time.Now())
		require.False(t, tier.answers(r))
		tier.keep(tier.ask(), r, time.Now())
		require.True(t, tier.answers(r))
		tier.off()
	}
}

func TestNothingButCompletedClaimsIsKept(t *testing.T) {
	t.Parallel()
	tier := hearing(t)
	for _, state := range []State{Running, Failed, Canceled, Released} {
		r := completed("k", time.Now())
		r.State = state
		tier.keep(tier.ask(), r, time.Now())
		require.False(t, tier.answers(r), state)
	}
	r := completed("k", time.Now().Add(-2*time.Hour))
	tier.keep(tier.ask(), r, time.Now())
	require.False(t, tier.answers(r), "over")
}

func TestTheTierIsBounded(t *testing.T) {
	t.Parallel()
	tier := hearing(t)
	const n = 10000
	text := string(make([]byte, MaxSummary))
	for i := range n {
		r := completed(strconv.Itoa(i), time.Now())
		r.Result = Result{Summary: text, Outputs: map[string]string{"x": text}}
		tier.proved(tier.clock())
		tier.keep(tier.ask(), r, time.Now())
	}
	tier.cache.CleanUp()
	require.Positive(t, tier.cache.EstimatedSize())
	require.LessOrEqual(t, tier.cache.WeightedSize(), uint64(tierWeight))
	require.Less(t, tier.cache.EstimatedSize(), n/2)
}

func BenchmarkLocalHit(b *testing.B) {
	tier := hearing(b)
	r := completed("shop-v1.4.2-prod", time.Now())
	tier.keep(tier.ask(), r, time.Now())
	tier.until.Store(1 << 62) // for as long as the benchmark takes
	tier.untilWall.Store(1 << 62)
	c := &Claims{tier: tier}
	claim := Claim{Key: r.Key, Owner: Owner{RunKey: "b"}, Request: Request{ID: "2"}}
	b.ReportAllocs()
	for b.Loop() {
		v, err := c.Claim(b.Context(), claim)
		if err != nil || v.Decision != Duplicate || !v.Local {
			b.Fatal(v.Decision, err)
		}
	}
}
