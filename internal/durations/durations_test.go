package durations_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/internal/durations"
	"belay.run/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Redialing()) }

func TestQuantiles(t *testing.T) {
	t.Parallel()
	for name, rdb := range map[string]redis.UniversalClient{
		"Redis": redistest.Start(t).Client(t), "Cluster": redistest.Cluster(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := durations.New(rdb)
			s := durations.Subject{Tenant: "acme", Project: "web", Pipeline: "deploy", Node: "build/compile"}
			none, err := d.Quantiles(t.Context(), s)
			require.NoError(t, err)
			require.Zero(t, none)

			for i := range 100 {
				require.NoError(t, d.Add(t.Context(), s, time.Duration(100-i)*time.Second))
			}
			q, err := d.Quantiles(t.Context(), s)
			require.NoError(t, err)
			require.Equal(t, durations.Quantiles{P50: 50 * time.Second, P95: 95 * time.Second, P99: 99 * time.Second, Count: 100}, q)

			// What is long ago counts no more.
			for range 300 {
				require.NoError(t, d.Add(t.Context(), s, time.Millisecond))
			}
			q, err = d.Quantiles(t.Context(), s)
			require.NoError(t, err)
			require.Equal(t, durations.Quantiles{P50: time.Millisecond, P95: time.Millisecond, P99: time.Millisecond, Count: 256}, q)
			require.EqualValues(t, 1, rdb.DBSize(t.Context()).Val())

			other := s
			other.Node, other.Pipeline = "deploy/build/compile", ""
			q, err = d.Quantiles(t.Context(), other)
			require.NoError(t, err)
			require.Zero(t, q, "another subject")
		})
	}
}

func TestOneIsAllOfThem(t *testing.T) {
	t.Parallel()
	d := durations.New(redistest.Start(t).Client(t))
	require.NoError(t, d.Add(t.Context(), durations.Subject{Tenant: "t"}, 1500*time.Millisecond))
	q, err := d.Quantiles(t.Context(), durations.Subject{Tenant: "t"})
	require.NoError(t, err)
	require.Equal(t, durations.Quantiles{P50: 1500 * time.Millisecond, P95: 1500 * time.Millisecond, P99: 1500 * time.Millisecond, Count: 1}, q)
}

func TestWindow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := durations.New(server.Client(t))
	s := durations.Subject{Tenant: "acme", Pipeline: "deploy"}
	window := func(timeout time.Duration) time.Duration {
		w, err := d.Window(t.Context(), s, timeout)
		require.NoError(t, err)
		return w
	}
	require.Equal(t, 24*time.Hour, window(time.Minute), "nothing is known")
	require.Equal(t, 60*time.Hour, window(30*time.Hour))
	require.NoError(t, d.Add(t.Context(), s, 10*time.Minute))
	require.Equal(t, 20*time.Minute, window(time.Minute))
	require.Equal(t, time.Hour, window(30*time.Minute), "at least twice the timeout")

	server.Stop(t)
	w, err := d.Window(t.Context(), s, 30*time.Hour)
	require.Error(t, err)
	require.Equal(t, 60*time.Hour, w, "as if nothing were known")
}

func TestSubjectsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Bubble(t)
		d := durations.New(rdb)
		pass := time.Sleep // in the bubble, where that takes no time
		s := durations.Subject{Tenant: "acme"}
		require.NoError(t, d.Add(t.Context(), s, time.Second))
		pass(29 * 24 * time.Hour)
		q, err := d.Quantiles(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, 1, q.Count)
		pass(2 * 24 * time.Hour)
		q, err = d.Quantiles(t.Context(), s)
		require.NoError(t, err)
		require.Zero(t, q.Count)
	})
}

func TestSubjectsHaveNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, "acme/web/deploy/build/x", durations.Subject{"acme", "web", "deploy", "build/x"}.String())
	require.Equal(t, "acme/web/deploy", durations.Subject{Tenant: "acme", Project: "web", Pipeline: "deploy"}.String())
}
