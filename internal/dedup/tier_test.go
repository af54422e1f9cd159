package dedup_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"belay.run/internal/dedup"
	"belay.run/internal/redistest"
)

// local asks b's tier until it answers, or not, as wanted.
func (b *bundle) local(t testing.TB, want bool) {
	t.Helper()
	b.localKey(t, pipelineKey, want)
}

func (b *bundle) localKey(t testing.TB, key dedup.Key, want bool) {
	t.Helper()
	claim := dedup.Claim{Key: key, Owner: owner("asks whether it is local")}
	require.Eventually(t, func() bool {
		v, err := b.Claim(t.Context(), claim)
		return err == nil && v.Decision == dedup.Duplicate && v.Local == want
	}, 20*time.Second, 5*time.Millisecond, "local: %v", want)
}

// inBubble runs a test with two workers on a Redis of its own.
func inBubble(t *testing.T, test func(t *testing.T, a, b *bundle)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := newMiniredis(t)
		a, b := bubbled(t, rdb, dedup.Options{Tier: true}), bubbled(t, rdb, dedup.Options{Tier: true})
		synctest.Wait() // both hear themselves
		test(t, a, b)
	})
}

func TestHotDuplicatesAreAnsweredHere(t *testing.T) {
	inBubble(t, func(t *testing.T, a, b *bundle) {
		t.Helper()
		claim := by("a")
		claim.Fingerprint = "1"
		result := dedup.Result{Summary: "done", Outputs: map[string]string{"x": "1"}}
		v := a.claim(t, claim, dedup.Granted)
		require.False(t, a.claim(t, by("b"), dedup.InFlight).Local, "who runs may end at any time")
		require.NoError(t, a.Settle(t.Context(), dedup.Settlement{Held: held(v.Record), State: dedup.Completed, Window: time.Hour, Result: result}))

		require.True(t, a.claim(t, by("b"), dedup.Duplicate).Local, "who settled knows")
		far := b.claim(t, by("b"), dedup.Duplicate)
		require.False(t, far.Local)
		other := by("b")
		other.Fingerprint = "2"
		b.pass(time.Minute)
		near := b.claim(t, other, dedup.Duplicate)
		require.True(t, near.Local)
		require.True(t, near.Mismatch)
		require.Equal(t, far.Record, near.Record)
		require.True(t, near.At.Equal(far.At.Add(time.Minute)))
		require.True(t, a.claim(t, claim, dedup.Done).Local)
		rerun := other
		rerun.Rerun, rerun.Request.At = true, time.Now().Add(-time.Hour)
		require.False(t, b.claim(t, rerun, dedup.Duplicate).Local)

		b.pass(59*time.Minute - time.Nanosecond)
		require.True(t, b.claim(t, by("b"), dedup.Duplicate).Local)
		b.pass(time.Nanosecond)
		b.claim(t, by("b"), dedup.Granted)
		a.claim(t, by("c"), dedup.InFlight)
	})
}

func TestOtherEndsAreNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T, a, b *bundle) {
		t.Helper()
		raced := by("c")
		raced.Request.At = time.Now()
		for _, state := range []dedup.State{dedup.Failed, dedup.Canceled} {
			a.run(t, by(string(state)), state)
			require.False(t, a.claim(t, raced, dedup.Late).Local)
			require.False(t, b.claim(t, raced, dedup.Late).Local)
		}
	})
}

func TestRequestsOfEarlierRunsAreAskedOfRedis(t *testing.T) {
	inBubble(t, func(t *testing.T, a, _ *bundle) {
		t.Helper()
		a.run(t, by("a"), dedup.Failed)
		a.run(t, by("b"), dedup.Completed)
		redelivered := by("a'")
		redelivered.Request = by("a").Request
		require.Equal(t, owner("a"), a.claim(t, redelivered, dedup.Redelivered).Record.Owner)
		redelivered.Request = by("b").Request
		require.True(t, a.claim(t, redelivered, dedup.Duplicate).Local)
		redelivered.Request.ID = ""
		require.True(t, a.claim(t, redelivered, dedup.Duplicate).Local)
		require.False(t, a.claim(t, by("c"), dedup.Duplicate).Local)
		own := a.claim(t, by("b"), dedup.Done)
		require.True(t, own.Local)
	})
}

func TestAnOldResultIsNotKeptForOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, a, b *bundle) {
		t.Helper()
		a.run(t, by("a"), dedup.Completed)
		rerun := by("b")
		rerun.Rerun = true
		b.claim(t, rerun, dedup.Granted)
		require.False(t, a.claim(t, by("a"), dedup.Done).Local)
		a.claim(t, by("c"), dedup.InFlight)
	})
}

func TestReleasesAndRerunsReachAllTiers(t *testing.T) {
	inBubble(t, func(t *testing.T, a, b *bundle) {
		t.Helper()
		workers := []*bundle{a, b}
		a.run(t, by("a"), dedup.Completed)
		b.claim(t, by("x"), dedup.Duplicate)
		for _, w := range workers {
			w.local(t, true)
		}
		begun := time.Now()
		rerun := by("b")
		rerun.Rerun = true
		b.claim(t, rerun, dedup.Granted)
		require.Equal(t, 3*time.Second, time.Since(begun))
		for _, w := range workers {
			w.claim(t, by("x"), dedup.InFlight)
		}
		v := b.claim(t, rerun, dedup.Resumed)
		require.Equal(t, 3*time.Second, time.Since(begun), "it was announced")
		b.settle(t, v, dedup.Completed)
		b.claim(t, by("x"), dedup.Duplicate)

		released, err := a.ReleaseByOperator(t.Context(), pipelineKey)
		require.NoError(t, err)
		require.Equal(t, owner("b"), released.Owner)
		require.Equal(t, 6*time.Second, time.Since(begun))
		b.claim(t, by("y"), dedup.Granted)
	})
}

func TestARerunWhoseAnswerWasLostIsAwaited(t *testing.T) {
	inBubble(t, func(t *testing.T, a, b *bundle) {
		t.Helper()
		a.run(t, by("a"), dedup.Completed)
		rerun := by("b")
		rerun.Rerun = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Claim(ctx, rerun)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, dedup.ErrUnavailable)
		begun := time.Now()
		rerun.Rerun = false // an attempt that forgot
		b.claim(t, rerun, dedup.Resumed)
		require.Equal(t, 2*time.Second, time.Since(begun))
	})
}

func TestWhatIsAskedBeforeAnAnnouncementIsNotKeptAfterIt(t *testing.T) {
	inBubble(t, func(t *testing.T, a, b *bundle) {
		t.Helper()
		// 20 workers ask while an operator releases: whatever comes first, no
		// tier knows the old state when the release has returned.
		for range 50 {
			a.run(t, by("a"), dedup.Completed)
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() { _, _ = b.Claim(t.Context(), dedup.Claim{Key: pipelineKey, Owner: owner("b")}) })
			}
			_, err := a.ReleaseByOperator(t.Context(), pipelineKey)
			require.NoError(t, err)
			group.Wait()
			for _, w := range []*bundle{a, b} {
				v, err := w.Claim(t.Context(), dedup.Claim{Key: pipelineKey, Owner: owner("c")})
				require.NoError(t, err)
				require.False(t, v.Local)
				require.NotEqual(t, dedup.Duplicate, v.Decision)
			}
			_, err = a.ReleaseByOperator(t.Context(), pipelineKey)
			require.NoError(t, err)
			require.NoError(t, a.rdb.FlushAll(t.Context()).Err())
		}
	})
}

// wire is a connection to Redis that can be cut, or say nothing more.
type wire struct {
	mu     sync.Mutex
	conns  map[net.Conn]bool
	refuse bool
	// mute drops what subscriptions would hear; the connection stays open.
	mute bool
	addr string
}

// newWire listens and passes on to a Redis.
func newWire(t testing.TB, to string) *wire {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{conns: map[net.Conn]bool{}, addr: l.Addr().String()}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil || !w.add(conn, server) {
				_ = conn.Close()
				continue
			}
			group.Go(func() { _, _ = io.Copy(server, conn); _ = server.Close() })
			group.Go(func() { w.pass(conn, server); _ = conn.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); w.cut(true); group.Wait() })
	return w
}

func (w *wire) add(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
	return !w.refuse
}

func (w *wire) pass(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		mute := w.mute
		w.mu.Unlock()
		if !mute {
			_, _ = to.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// cut closes all connections, and refuses new ones until it is called again.
func (w *wire) cut(refuse bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = refuse
	for c := range w.conns {
		_ = c.Close()
	}
	clear(w.conns)
}

func (w *wire) muted(mute bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = mute
}

// subscriber is a client whose subscriptions go through a wire, and its commands
// straight to Redis.
type subscriber struct {
	redis.UniversalClient
	through redis.UniversalClient
}

func (s subscriber) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return s.through.Subscribe(ctx, channels...)
}

// onAWire is a worker with a tier that hears through a wire, and another one.
func onAWire(t *testing.T) (deaf, other *bundle, w *wire) {
	t.Helper()
	server := redistest.Start(t)
	rdb := server.Client(t)
	w = newWire(t, server.Addr)
	through := redis.NewClient(&redis.Options{Addr: w.addr})
	t.Cleanup(func() { require.NoError(t, through.Close()) })
	deaf = &bundle{Claims: open(t, subscriber{rdb, through}, dedup.Options{Tier: true}), rdb: rdb}
	return deaf, &bundle{Claims: open(t, rdb, dedup.Options{}), rdb: rdb}, w
}

func TestTierThatHearsNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ lose, restore func(*wire) }{
		"cut":   {func(w *wire) { w.cut(true) }, func(w *wire) { w.cut(false) }},
		"mute":  {func(w *wire) { w.muted(true) }, func(w *wire) { w.muted(false) }},
		"blink": {func(w *wire) { w.cut(false) }, func(*wire) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deaf, other, w := onAWire(t)
			deaf.run(t, by("a"), dedup.Completed)
			deaf.local(t, true)

			test.lose(w)
			// The announcement does not reach it. By the time that the release
			// returns, it does not answer from what it knew.
			_, err := other.ReleaseByOperator(t.Context(), pipelineKey)
			require.NoError(t, err)
			v := deaf.claim(t, by("b"), dedup.Granted)
			require.False(t, v.Local)
			deaf.settle(t, v, dedup.Completed)
			if name != "blink" {
				require.False(t, deaf.claim(t, by("c"), dedup.Duplicate).Local, "it is off")
			}

			test.restore(w)
			deaf.local(t, true)
			require.Equal(t, owner("b"), deaf.claim(t, by("b"), dedup.Done).Record.Owner)
		})
	}
}

func TestTierOnACluster(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	a := &bundle{Claims: open(t, rdb, dedup.Options{Tier: true}), rdb: rdb}
	b := &bundle{Claims: open(t, rdb, dedup.Options{Tier: true}), rdb: rdb}
	a.run(t, by("a"), dedup.Completed)
	a.local(t, true)
	b.local(t, true)
	rerun := by("b")
	rerun.Rerun = true
	b.claim(t, rerun, dedup.Granted)
	a.claim(t, by("c"), dedup.InFlight)
	b.claim(t, by("c"), dedup.InFlight)
}

func TestCloseTwice(t *testing.T) {
	t.Parallel()
	c, err := dedup.Open(redistest.Start(t).Client(t), dedup.Options{Tier: true})
	require.NoError(t, err)
	c.Close()
	c.Close()
	_, err = dedup.Open(nil, dedup.Options{})
	require.Error(t, err)
}
