package redistest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
