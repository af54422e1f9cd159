package cancels_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/internal/cancels"
	"belay.run/internal/redistest"
	"belay.run/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Redialing()) }

// listen hears cancels until the test ends.
func listen(t *testing.T, c *cancels.Cancels) <-chan cancels.Cancel {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	heard := make(chan cancels.Cancel, 100)
	var listening sync.WaitGroup
	listening.Go(func() {
		c.Listen(ctx, func(c cancels.Cancel) {
			select {
			case heard <- c:
			default: // enough of them
			}
		})
	})
	t.Cleanup(func() { stop(); listening.Wait() })
	return heard
}

// requireHeard announces a cancel until it is heard: nobody knows when a
// listener has begun to listen.
func requireHeard(t *testing.T, c *cancels.Cancels, heard <-chan cancels.Cancel, want cancels.Cancel) {
	t.Helper()
	require.Eventually(t, func() bool {
		if c.Announce(t.Context(), want) != nil {
			return false
		}
		for {
			select {
			case got := <-heard:
				got.Answer = "" // one for each announcement
				if got == want {
					return true
				}
			case <-time.After(50 * time.Millisecond):
				return false
			}
		}
	}, time.Minute, time.Millisecond)
}

func TestCancelsAreHeardByAll(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	c := cancels.New(rdb)
	one, two := listen(t, c), listen(t, cancels.New(server.Client(t)))
	cancel := cancels.Cancel{RunKey: "k", Cause: run.Cause{Trigger: run.TriggerUser, By: "ada", Message: "wrong tag"}}
	requireHeard(t, c, one, cancel)
	requireHeard(t, c, two, cancel)

	// What is none is passed over.
	require.NoError(t, rdb.Publish(t.Context(), "belay:cancels", "{").Err())
	require.NoError(t, rdb.Publish(t.Context(), "belay:cancels", "{}").Err())
	cancel.RunKey = "k2"
	requireHeard(t, c, one, cancel)

	server.Stop(t)
	require.Error(t, c.Announce(t.Context(), cancel))
	server.Restart(t)
	cancel.RunKey = "k3"
	requireHeard(t, c, one, cancel)
}

func TestWithoutARedisNothingIsSaid(t *testing.T) {
	t.Parallel()
	c := cancels.New(nil)
	require.NoError(t, c.Announce(t.Context(), cancels.Cancel{RunKey: "k"}))
	c.Listen(t.Context(), func(cancels.Cancel) { require.Fail(t, "heard something") })
}

// TestAnnounceWaitsForWhoHears: it returns when all that listen are done, and
// does not wait for ever for one that is not.
func TestAnnounceWaitsForWhoHears(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := cancels.New(server.Client(t))
	ctx, stop := context.WithCancel(t.Context())
	var done atomic.Bool
	goOn := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		c.Listen(ctx, func(cancel cancels.Cancel) {
			if cancel.RunKey == "stuck" {
				<-goOn
			}
			time.Sleep(20 * time.Millisecond) // what it does takes its time
			done.Store(true)
		})
	})
	t.Cleanup(func() { stop(); listening.Wait() })
	require.Eventually(t, func() bool {
		done.Store(false)
		return c.Announce(t.Context(), cancels.Cancel{RunKey: "k"}) == nil && done.Load()
	}, time.Minute, time.Millisecond, "it returns before who heard it is done")

	done.Store(false)
	require.NoError(t, c.Announce(t.Context(), cancels.Cancel{RunKey: "stuck"}))
	require.False(t, done.Load())
	close(goOn)
}
