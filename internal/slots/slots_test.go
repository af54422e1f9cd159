package slots_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"belay.run/internal/slots"
)

// order is who got a slot, one after the other, while each gives it back at once.
func order(t *testing.T, s *slots.Slots, holder string, waiters ...string) string {
	t.Helper()
	var got []string
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, s.Acquire(t.Context(), holder))
		var all sync.WaitGroup
		for _, tenant := range waiters {
			all.Go(func() {
				if s.Acquire(t.Context(), tenant) == nil {
					got = append(got, tenant) // one slot: nobody else is here
					s.Release(tenant)
				}
			})
			synctest.Wait()
		}
		s.Release(holder)
		all.Wait()
	})
	return strings.Join(got, "")
}

func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abaaa", order(t, slots.New(1, nil), "a", "a", "a", "a", "a", "b"))
	require.Equal(t, "abcabcaa", order(t, slots.New(1, nil), "z", strings.Split("aaaabbcc", "")...))
}

func TestATenantHasItsMost(t *testing.T) {
	t.Parallel()
	s := slots.New(3, func(tenant string) int { return map[string]int{"a": 1}[tenant] })
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, s.Acquire(t.Context(), "a"))
		waits := make(chan error, 1)
		go func() { waits <- s.Acquire(t.Context(), "a") }()
		synctest.Wait()
		require.Empty(t, waits, "two of a at once")
		require.NoError(t, s.Acquire(t.Context(), "b"))
		require.NoError(t, s.Acquire(t.Context(), "b"))
		s.Release("b")
		synctest.Wait()
		require.Empty(t, waits, "a slot of b is none for a")
		s.Release("a")
		require.NoError(t, <-waits)
	})
}

func TestWhoIsCancelledLeavesTheQueue(t *testing.T) {
	t.Parallel()
	s := slots.New(1, nil)
	synctest.Test(t, func(t *testing.T) {
		require.NoError(t, s.Acquire(t.Context(), "a"))
		ctx, cancel := context.WithCancelCause(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- s.Acquire(ctx, "a") }()
		synctest.Wait()
		go func() { second <- s.Acquire(t.Context(), "a") }()
		synctest.Wait()
		cancel(fmt.Errorf("no longer"))
		require.EqualError(t, <-first, "no longer")
		s.Release("a")
		require.NoError(t, <-second)
		s.Release("a")
	})
}

// TestNoSlotIsLostOrGivenTwice holds slots under random load: never more than
// there are, and all of them free in the end.
func TestNoSlotIsLostOrGivenTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		total := rapid.IntRange(1, 4).Draw(rt, "total")
		most := rapid.IntRange(0, 2).Draw(rt, "most")
		s := slots.New(total, func(string) int { return most })
		var all sync.WaitGroup
		var mu sync.Mutex
		held, perTenant := 0, map[string]int{}
		count := func(tenant string, d int) (int, int) {
			mu.Lock()
			defer mu.Unlock()
			held, perTenant[tenant] = held+d, perTenant[tenant]+d
			return held, perTenant[tenant]
		}
		wrong := make(chan string, 100)
		for i := range rapid.IntRange(1, 60).Draw(rt, "users") {
			tenant := string(rune('a' + i%3))
			cancelled := rapid.Bool().Draw(rt, "cancelled")
			all.Go(func() {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if cancelled {
					go cancel(nil)
				}
				if s.Acquire(ctx, tenant) != nil {
					return
				}
				if n, own := count(tenant, 1); n > total || most > 0 && own > most {
					wrong <- fmt.Sprintf("%d held of %d, %d by one tenant", n, total, own)
				}
				count(tenant, -1)
				s.Release(tenant)
			})
		}
		all.Wait()
		if len(wrong) > 0 {
			rt.Fatal(<-wrong)
		}
		for i := range total {
			if err := s.Acquire(t.Context(), fmt.Sprint("last", i)); err != nil {
				rt.Fatal(err)
			}
		}
	})
}
