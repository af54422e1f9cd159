package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
	"belay.run/workflows"
)

// sleeping are the living processes "sleep MARK" of this machine.
func sleeping(t *testing.T, mark string) []int {
	t.Helper()
	return slices.DeleteFunc(marked(t, mark), func(pid int) bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || string(line) != "sleep\x00"+mark+"\x00"
	})
}

// TestSemaphoreKeepsItsSlots is argoproj/argo-workflows#7633 with whole runs: five
// hundred are started and cancelled on a semaphore of two, each at another moment of
// its life. At no time have more than two a process, and in the end both slots are
// free, and no third.
func TestSemaphoreKeepsItsSlots(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	const cycles, crowd = 500, 6
	group, mark := uuid.NewString(), seconds(391)
	// In every other run a step holds the slot, else the run: they share the group.
	start := func(i int) *e2e.Run {
		if i%2 == 0 {
			return env.Run(t, semaphore("concurrency: {group: "+group+", limit: 2}", "", mark))
		}
		return env.Run(t, semaphore("", "resources: [{kind: slot, name: "+group+", limit: 2}], ", mark))
	}
	rng := rand.New(rand.NewPCG(5, 6))
	var open, all []*e2e.Run
	for i := range cycles {
		open = append(open, start(i))
		all = append(all, open[len(open)-1])
		require.LessOrEqual(t, len(sleeping(t, mark)), 2)
		if len(open) < crowd {
			continue
		}
		k := rng.IntN(len(open))
		open[k].Cancel("")
		open = slices.Delete(open, k, k+1)
	}
	for _, r := range open {
		r.Cancel("")
	}
	for _, r := range all {
		require.Equal(t, run.Cancelled, r.Wait().Status)
	}
	requireGone(t, mark)
	waitEmpty(t, env, group)

	for i := range 3 {
		start(i)
	}
	waitGroup(t, env, group, "two of three hold a slot", func(s workflows.GroupState) bool { return len(s.Holders) == 2 && s.Waiting == 1 })
	require.Eventually(t, func() bool { return len(sleeping(t, mark)) == 2 }, e2e.Patience, 50*time.Millisecond)
}

func semaphore(ofRun, ofStep, mark string) string {
	return fmt.Sprintf("version: 1\nname: cycle\n%s\nstages: [{name: s, steps: [{name: a, grace_period: 1s, %srun: exec sleep %s}]}]\n", ofRun, ofStep, mark)
}
