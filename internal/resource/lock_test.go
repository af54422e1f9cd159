package resource_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"belay.run/internal/redistest"
	"belay.run/internal/resource"
)

func lockOf(step string) *resource.Entry {
	e := entry("run1", "deploy/"+step, 1, "")
	e.Tenant, e.Project, e.Name = "acme", "web", "prod"
	return &e
}

// waits tells what one who waits was last told.
type waits struct{ told atomic.Pointer[string] }

func (w *waits) ask() resource.Ask {
	return resource.Ask{Waiting: func(position int, holder string) {
		s := fmt.Sprintf("%d %s", position, holder)
		w.told.Store(&s)
	}}
}

func (w *waits) last() string {
	if s := w.told.Load(); s != nil {
		return *s
	}
	return ""
}

// patience bounds what is broken only.
const patience = time.Minute

func token(t *testing.T, e *resource.Entry) int64 {
	t.Helper()
	n, err := strconv.ParseInt(e.ID, 10, 64)
	require.NoError(t, err)
	return n
}

func TestLockGoesToThoseWhoWaitInOrder(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	locks := resource.NewLocks(rdb, resource.LocksOptions{})
	first := lockOf("first")
	grant, err := locks.Acquire(t.Context(), first, resource.Ask{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"BELAY_LOCK_TOKEN_PROD": first.ID}, grant.Env)

	var g errgroup.Group
	var mu sync.Mutex
	var order []string
	last := token(t, first)
	for i := range 5 {
		w := &waits{}
		e := lockOf(fmt.Sprintf("n%d", i))
		g.Go(func() error {
			if _, err := locks.Acquire(t.Context(), e, w.ask()); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			order = append(order, e.Node)
			if now := token(t, e); now <= last {
				return fmt.Errorf("token %d after %d", now, last)
			}
			last = token(t, e)
			return locks.Release(t.Context(), e)
		})
		require.Eventually(t, func() bool { return w.last() == fmt.Sprintf("%d acme/web/shop/r/1 deploy/first", i+1) },
			patience, 5*time.Millisecond, "it waits behind the others")
	}
	require.NoError(t, locks.Release(t.Context(), first))
	require.NoError(t, g.Wait())
	require.Equal(t, []string{"deploy/n0", "deploy/n1", "deploy/n2", "deploy/n3", "deploy/n4"}, order)
	require.NoError(t, locks.Release(t.Context(), first), "once more changes nothing")
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		require.Positive(t, rdb.PTTL(t.Context(), key).Val(), "%s stays for ever", key)
	}
}

func TestLockWaiterLeavesAtOnce(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	locks := resource.NewLocks(rdb, resource.LocksOptions{})
	first, second, third := lockOf("first"), lockOf("second"), lockOf("third")
	_, err := locks.Acquire(t.Context(), first, resource.Ask{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("cancelled")
	w2, w3 := &waits{}, &waits{}
	var g errgroup.Group
	g.Go(func() error {
		_, err := locks.Acquire(ctx, second, w2.ask())
		if !errors.Is(err, gone) {
			return fmt.Errorf("want the cause of the cancel, got %w", err)
		}
		return locks.Release(t.Context(), second) //nolint:contextcheck // that of the waiter is over
	})
	require.Eventually(t, func() bool { return w2.last() != "" }, patience, 5*time.Millisecond)
	g.Go(func() error { _, err := locks.Acquire(t.Context(), third, w3.ask()); return err })
	require.Eventually(t, func() bool { return w3.last() == "2 acme/web/shop/r/1 deploy/first" }, patience, 5*time.Millisecond)
	cancel(gone)
	require.Eventually(t, func() bool { return w3.last() == "1 acme/web/shop/r/1 deploy/first" }, patience, 5*time.Millisecond)
	require.NoError(t, locks.Release(t.Context(), first))
	require.NoError(t, g.Wait())
}

// A holder that fell silent loses the lock after its lease, and is refused when it
// comes back.
func TestLockOfASilentHolder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Bubble(t)
		locks := resource.NewLocks(rdb, resource.LocksOptions{})
		silent, next := lockOf("silent"), lockOf("next")
		_, err := locks.Acquire(t.Context(), silent, resource.Ask{})
		require.NoError(t, err)
		began := time.Now()
		_, err = locks.Acquire(t.Context(), next, (&waits{}).ask())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), resource.LockLease)
		require.Less(t, time.Since(began), resource.LockLease+5*time.Second)
		require.Greater(t, token(t, next), token(t, silent))

		lost := make(chan error, 1)
		locks.Keep(t.Context(), *silent, func(err error) { lost <- err })
		require.ErrorContains(t, <-lost, "another's")
		require.NoError(t, locks.Release(t.Context(), silent), "what is not its own stays")
		w := &waits{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = locks.Acquire(ctx, lockOf("third"), w.ask())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "1 acme/web/shop/r/1 deploy/next", w.last())
	})
}

// A holder that renews keeps the lock, however long; one that others released for
// it cannot put it back.
func TestLockIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Bubble(t)
		locks := resource.NewLocks(rdb, resource.LocksOptions{})
		holder := lockOf("holder")
		_, err := locks.Acquire(t.Context(), holder, resource.Ask{})
		require.NoError(t, err)
		keeping, stop := context.WithCancelCause(t.Context())
		done := make(chan struct{})
		lost := make(chan error, 1)
		go func() {
			defer close(done)
			locks.Keep(keeping, *holder, func(err error) { lost <- err })
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		waiter := lockOf("waiter")
		_, err = locks.Acquire(ctx, waiter, (&waits{}).ask())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, locks.Release(t.Context(), waiter))
		require.Empty(t, lost)

		require.NoError(t, locks.Release(t.Context(), holder))
		require.Error(t, <-lost)
		stop(nil)
		<-done
		_, err = locks.Acquire(t.Context(), waiter, resource.Ask{})
		require.NoError(t, err, "at once")
	})
}

// Redis is away for longer than a lease: whoever waits lets the holder renew first.
func TestLockOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, rdb := redistest.Bubble(t)
		locks := resource.NewLocks(rdb, resource.LocksOptions{})
		holder, waiter := lockOf("holder"), lockOf("waiter")
		_, err := locks.Acquire(t.Context(), holder, resource.Ask{})
		require.NoError(t, err)
		keeping, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		lost := make(chan error, 1)
		go locks.Keep(keeping, *holder, func(err error) { lost <- err })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		failed := make(chan error, 1)
		go func() { _, err := locks.Acquire(ctx, waiter, (&waits{}).ask()); failed <- err }()
		time.Sleep(15 * time.Second)
		server.SetError("LOADING Redis is loading the dataset in memory")
		time.Sleep(time.Minute)
		server.SetError("")
		require.ErrorIs(t, <-failed, context.DeadlineExceeded)
		require.Empty(t, lost)
	})
}

// Nobody can ask for longer than a place in the queue is kept, as where Redis is
// away: whoever asks first then does not come before who came first.
func TestLockQueueOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Bubble(t)
		locks := resource.NewLocks(rdb, resource.LocksOptions{})
		holder, first, second := lockOf("holder"), lockOf("first"), lockOf("second")
		_, err := locks.Acquire(t.Context(), holder, resource.Ask{})
		require.NoError(t, err)
		for _, e := range []*resource.Entry{first, second} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := locks.Acquire(ctx, e, (&waits{}).ask())
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		require.NoError(t, locks.Release(t.Context(), holder))
		time.Sleep(10 * time.Second)

		var g errgroup.Group
		order := make(chan string, 2)
		for _, e := range []*resource.Entry{second, first} {
			g.Go(func() error {
				_, err := locks.Acquire(t.Context(), e, (&waits{}).ask())
				order <- e.Node
				return errors.Join(err, locks.Release(t.Context(), e))
			})
			time.Sleep(300 * time.Millisecond)
		}
		require.NoError(t, g.Wait())
		require.Equal(t, []string{"deploy/first", "deploy/second"}, []string{<-order, <-order})
	})
}

// A place of one who is dead holds nobody up for long.
func TestLockQueueForgetsTheDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Bubble(t)
		locks := resource.NewLocks(rdb, resource.LocksOptions{})
		holder, dead := lockOf("holder"), lockOf("dead")
		_, err := locks.Acquire(t.Context(), holder, resource.Ask{})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = locks.Acquire(ctx, dead, (&waits{}).ask())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, locks.Release(t.Context(), holder))
		began := time.Now()
		_, err = locks.Acquire(t.Context(), lockOf("next"), (&waits{}).ask())
		require.NoError(t, err)
		require.Less(t, time.Since(began), 10*time.Second)
	})
}

// Redis comes back empty: the holder puts its lock back, and nobody takes it in
// between.
func TestLockAfterRedisLostItsMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, rdb := redistest.Bubble(t)
		var lostAt atomic.Int64
		recovering := func(context.Context) (bool, error) {
			at := lostAt.Load()
			return at != 0 && time.Since(time.Unix(0, at)) < 15*time.Second, nil
		}
		locks := resource.NewLocks(rdb, resource.LocksOptions{Recovering: recovering})
		holder, waiter := lockOf("holder"), lockOf("waiter")
		_, err := locks.Acquire(t.Context(), holder, resource.Ask{})
		require.NoError(t, err)
		keeping, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		lost := make(chan error, 1)
		go locks.Keep(keeping, *holder, func(err error) { lost <- err })
		time.Sleep(time.Second)
		lostAt.Store(time.Now().UnixNano())
		server.FlushAll()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_, err = locks.Acquire(ctx, waiter, (&waits{}).ask())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, lost)
	})
}

func TestLockWithoutRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, rdb := redistest.Bubble(t)
		server.SetError("LOADING Redis is loading the dataset in memory")
		began := time.Now()
		_, err := resource.NewLocks(rdb, resource.LocksOptions{}).Acquire(t.Context(), lockOf("a"), resource.Ask{})
		require.ErrorIs(t, err, resource.ErrUnavailable)
		require.GreaterOrEqual(t, time.Since(began), resource.LockPatience)
	})
	_, err := resource.NewLocks(nil, resource.LocksOptions{}).Acquire(t.Context(), lockOf("a"), resource.Ask{})
	require.ErrorIs(t, err, resource.ErrUnavailable)
	require.NoError(t, resource.NewLocks(nil, resource.LocksOptions{}).Release(t.Context(), lockOf("a")))
}
