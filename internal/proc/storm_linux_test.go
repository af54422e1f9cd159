package proc

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/testkit/need"
)

// Twenty chains of processes, each of which starts its successor in a session
// of its own and ends: whoever looks for them comes too late. Only a cgroup ends
// such a storm; without one this test would fill the table of processes.
func TestAForkStormIsEnded(t *testing.T) {
	need.Cgroup(t)
	h := newHost(t, Options{})
	job := script(t, `for i in $(seq 20); do sh ./storm 5000 & done; echo ready; exec sleep `+forever)
	job.Grace = 100 * time.Millisecond
	storm := `[ "$1" -gt 0 ] || exit; echo x >>generations; setsid sh ./storm $(($1 - 1)) & exit`
	require.NoError(t, os.WriteFile(filepath.Join(job.Dir, "storm"), []byte(storm), 0o600))
	p := start(t, h, job)
	generations := func() int64 {
		info, err := os.Stat(filepath.Join(job.Dir, "generations"))
		if err != nil {
			return 0
		}
		return info.Size() / 2
	}
	require.Eventually(t, func() bool { return generations() > 200 }, patience, tick)
	p.Terminate()
	r := wait(t, p)
	require.True(t, r.Gone, r.GoneNote)
	ended := generations()
	require.Less(t, ended, int64(20*5000), "the storm ended by itself")
	require.Never(t, func() bool { return generations() > ended }, 300*time.Millisecond, tick, "the storm goes on")
}
