package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// slots are how many a Redis Cluster has.
const slots = 16384

// ClusterServers are the masters of a Redis Cluster, between whom the slots are
// divided.
type ClusterServers struct {
	Masters []*Server
	// URL is for REDIS_URL.
	URL string
}

// StartCluster starts a Redis Cluster of three masters. Args are added to their
// command lines.
func StartCluster(t testing.TB, args ...string) *ClusterServers {
	t.Helper()
	const masters = 3
	c := &ClusterServers{}
	var addrs, buses []string
	for range masters {
		_, bus, err := net.SplitHostPort(freeAddr(t))
		require.NoError(t, err)
		s := Start(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", bus,
		}, args...)...)
		c.Masters, addrs, buses = append(c.Masters, s), append(addrs, s.Addr), append(buses, bus)
	}
	c.URL = "redis+cluster://" + strings.Join(addrs, ",")
	for i, s := range c.Masters {
		admin := s.Client(t)
		do := func(args ...any) { require.NoError(t, admin.Do(t.Context(), args...).Err()) }
		do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		do("CLUSTER", "ADDSLOTSRANGE", i*slots/masters, (i+1)*slots/masters-1)
		host, port, err := net.SplitHostPort(c.Masters[0].Addr)
		require.NoError(t, err)
		if i > 0 {
			do("CLUSTER", "MEET", host, port, buses[0])
		}
	}
	for _, s := range c.Masters {
		requireWhole(t, s, masters)
	}
	return c
}

// requireWhole waits until a node knows of all the others and of all slots.
func requireWhole(t testing.TB, s *Server, nodes int) {
	t.Helper()
	admin := s.Client(t)
	want := []string{"cluster_state:ok", fmt.Sprintf("cluster_known_nodes:%d\r", nodes), fmt.Sprintf("cluster_slots_ok:%d\r", slots)}
	require.Eventually(t, func() bool {
		info, err := admin.Do(t.Context(), "CLUSTER", "INFO").Text()
		for _, w := range want {
			if err != nil || !strings.Contains(info, w) {
				return false
			}
		}
		return true
	}, patience, 5*time.Millisecond, "the cluster is not ready")
}

// Client connects to the cluster for the length of the test.
func (c *ClusterServers) Client(t testing.TB) redis.UniversalClient {
	t.Helper()
	addrs := make([]string, len(c.Masters))
	for i, s := range c.Masters {
		addrs[i] = s.Addr
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

// Cluster starts a server that is a Redis Cluster of one node: it refuses
// commands and scripts whose keys are in different slots.
func Cluster(t testing.TB) redis.UniversalClient {
	t.Helper()
	s := Start(t, "--cluster-enabled", "yes")
	require.NoError(t, s.Client(t).Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, slots-1).Err())
	requireWhole(t, s, 1)
	return (&ClusterServers{Masters: []*Server{s}}).Client(t)
}
