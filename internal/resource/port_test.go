package resource_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"belay.run/internal/resource"
)

func portOf(node string) *resource.Entry {
	e := entry("run1", node, 1, "")
	e.Kind, e.Name = resource.KindPort, "web"
	return &e
}

// Several workers of one machine share a directory, and no port is had twice.
func TestPortsAreShared(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ports")
	const low, high = 25000, 25039
	var g errgroup.Group
	got := make([]*resource.Entry, 30)
	workers := []*resource.Ports{
		resource.NewPorts(dir, low, high, "boot"), resource.NewPorts(dir, low, high, "boot"), resource.NewPorts(dir, low, high, "boot"),
	}
	for i := range got {
		got[i] = portOf(fmt.Sprintf("s/%d", i))
		g.Go(func() error { _, err := workers[i%3].Acquire(t.Context(), got[i], resource.Ask{}); return err })
	}
	require.NoError(t, g.Wait())
	seen := map[string]bool{}
	for _, e := range got {
		require.False(t, seen[e.ID], "port %s twice", e.ID)
		seen[e.ID] = true
	}
	for i, e := range got {
		require.NoError(t, workers[i%3].Release(t.Context(), e))
		require.NoError(t, workers[i%3].Release(t.Context(), e), "once more changes nothing")
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestPortThatIsListenedOnIsNotGivenOut(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	_, text, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "ports")
	_, err = resource.NewPorts(dir, port, port, "boot").Acquire(t.Context(), portOf("s/a"), resource.Ask{})
	require.ErrorIs(t, err, resource.ErrUnavailable)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A worker that was killed leaves files: its next process gives them back, known
// by id or not, and others take them over after a while or another boot only.
func TestPortsOfAKilledWorker(t *testing.T) {
	t.Parallel()
	leave := func(t *testing.T, port, boot string, age time.Duration) (dir string, e *resource.Entry) {
		t.Helper()
		dir, e = filepath.Join(t.TempDir(), "ports"), portOf("s/killed")
		require.NoError(t, os.Mkdir(dir, 0o700))
		e.ID = port
		text, err := json.Marshal(map[string]string{"holder": e.Holder(), "boot": boot})
		require.NoError(t, err)
		file := filepath.Join(dir, e.ID)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		require.NoError(t, os.Chtimes(file, time.Time{}, time.Now().Add(-age)))
		return dir, e
	}
	take := func(t *testing.T, port int, dir string) error {
		t.Helper()
		_, err := resource.NewPorts(dir, port, port, "now").Acquire(t.Context(), portOf("s/other"), resource.Ask{})
		return err
	}
	t.Run("kept for a while", func(t *testing.T) {
		t.Parallel()
		dir, _ := leave(t, "25100", "now", time.Minute)
		require.ErrorIs(t, take(t, 25100, dir), resource.ErrUnavailable)
	})
	for name, port := range map[string]int{"given back by its port": 25101, "given back without": 25102} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := strconv.Itoa(port)
			dir, e := leave(t, id, "now", time.Minute)
			other := portOf("s/unrelated")
			other.ID = id
			if port == 25102 {
				e.ID, other.ID = "", ""
			}
			ports := resource.NewPorts(dir, port, port, "now")
			require.NoError(t, ports.Release(t.Context(), other), "another's stays")
			require.FileExists(t, filepath.Join(dir, id))
			require.NoError(t, ports.Release(t.Context(), e))
			require.NoError(t, take(t, port, dir))
		})
	}
	t.Run("taken over when it is old", func(t *testing.T) {
		t.Parallel()
		dir, _ := leave(t, "25103", "now", time.Hour)
		require.NoError(t, take(t, 25103, dir))
	})
	t.Run("taken over after a boot", func(t *testing.T) {
		t.Parallel()
		dir, _ := leave(t, "25104", "before", time.Minute)
		require.NoError(t, take(t, 25104, dir))
	})
}
