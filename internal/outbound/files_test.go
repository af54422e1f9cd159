//go:build unix

package outbound_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/outbound"
)

// targetVariable tells a child of this test whom it is to ask.
const targetVariable = "OUTBOUND_TEST_TARGET"

// A connection that is kept for each of many hosts would use up the files of the
// process, which others need too.
func TestIdleConnectionsLeaveRoomForFiles(t *testing.T) {
	t.Parallel()
	if port := os.Getenv(targetVariable); port != "" {
		askManyHosts(t, port)
		return
	}
	// All of 127.0.0.0/8 is this machine.
	l, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.NoError(t, s.Listener.Close())
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), targetVariable+"="+at.Port())
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "asked 600 hosts")
}

// askManyHosts asks more hosts than there are files.
func askManyHosts(t *testing.T, port string) {
	t.Helper()
	const files, hosts, atOnce = 200, 600, 20
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: files, Max: files}))
	n := allowing(t, outbound.Config{}, "127.0.0.0/8")
	next := make(chan int)
	var asking sync.WaitGroup
	for range atOnce {
		asking.Go(func() {
			for i := range next {
				if status, err := get(t, n, fmt.Sprintf("http://127.0.%d.%d:%s/", 1+i/200, 1+i%200, port), 0); err != nil || status != http.StatusOK {
					t.Errorf("host %d: %d %v", i, status, err)
				}
			}
		})
	}
	for i := range hosts {
		next <- i
	}
	close(next)
	asking.Wait()
	t.Logf("asked %d hosts", hosts)
}
