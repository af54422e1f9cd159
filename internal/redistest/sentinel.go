package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// MasterName is what Sentinels call their master here.
const MasterName = "belay"

// SentinelServers are a master, its replica and the Sentinel that watches them.
type SentinelServers struct {
	Master, Replica, Sentinel *Server
	// URL is for REDIS_URL.
	URL string
}

// StartSentinel starts a master with a replica, and a Sentinel that makes the
// replica the master half a second after the master is gone.
func StartSentinel(t testing.TB) *SentinelServers {
	t.Helper()
	s := &SentinelServers{Master: Start(t)}
	host, port, err := net.SplitHostPort(s.Master.Addr)
	require.NoError(t, err)
	s.Replica = Start(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	s.requireInfo(t, s.Replica, "replication", "master_link_status:up")
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("dir %s\nbind 127.0.0.1\nsentinel monitor %[2]s %[3]s %[4]s 1\n"+
		"sentinel down-after-milliseconds %[2]s 500\nsentinel failover-timeout %[2]s 2000\n", dir, MasterName, host, port)
	require.NoError(t, os.WriteFile(conf, []byte(text), 0o600))
	s.Sentinel = start(t, []string{conf, "--sentinel"})
	s.URL = "redis+sentinel://" + s.Sentinel.Addr + "/" + MasterName
	s.requireInfo(t, s.Sentinel, "sentinel", "slaves=1")
	return s
}

// RequirePromoted waits until the replica has become the master.
func (s *SentinelServers) RequirePromoted(t testing.TB) {
	t.Helper()
	s.requireInfo(t, s.Replica, "replication", "role:master")
}

func (s *SentinelServers) requireInfo(t testing.TB, of *Server, section, want string) {
	t.Helper()
	rdb := of.Client(t)
	require.Eventually(t, func() bool {
		info, err := rdb.Info(t.Context(), section).Result()
		return err == nil && strings.Contains(info, want)
	}, 2*patience, 10*time.Millisecond, "%s does not say %s", of.Addr, want)
}
