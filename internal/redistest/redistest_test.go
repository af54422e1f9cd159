package redistest_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Redialing()) }

func TestServerRestarts(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Set(t.Context(), "a", "b", 0).Err())
	s.Stop(t)
	require.Error(t, rdb.Ping(t.Context()).Err())
	s.Restart(t)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	require.Zero(t, rdb.Exists(t.Context(), "a").Val())
}

func TestClusterRefusesKeysOfDifferentSlots(t *testing.T) {
	t.Parallel()
	rdb := redistest.Cluster(t)
	require.NoError(t, rdb.MSet(t.Context(), "{a}1", 1, "{a}2", 2).Err())
	err := rdb.Eval(t.Context(), `return redis.call('MGET', KEYS[1], KEYS[2])`, []string{"a", "b"}).Err()
	require.ErrorContains(t, err, "slot")
}

// TestStartCluster holds that the masters share the slots, and that each refuses
// what is another's.
func TestStartCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	rdb := c.Client(t)
	for i := range 100 {
		require.NoError(t, rdb.Set(t.Context(), strconv.Itoa(i), i, 0).Err())
	}
	for _, s := range c.Masters {
		require.Positive(t, s.Client(t).DBSize(t.Context()).Val(), "no key in %s", s.Addr)
	}
	require.ErrorContains(t, rdb.MSet(t.Context(), "a", 1, "b", 2).Err(), "slot")
}

// TestStartSentinel holds that the replica takes the master's place, with what
// the master held.
func TestStartSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	master := s.Master.Client(t)
	require.NoError(t, master.Set(t.Context(), "a", "b", 0).Err())
	require.EqualValues(t, 1, master.Do(t.Context(), "WAIT", 1, 10_000).Val())
	s.Master.Stop(t)
	s.RequirePromoted(t)
	replica := s.Replica.Client(t)
	require.Equal(t, "b", replica.Get(t.Context(), "a").Val())
	require.NoError(t, replica.Set(t.Context(), "a", "c", 0).Err())
}
