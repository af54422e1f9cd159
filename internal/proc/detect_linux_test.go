package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/testkit/need"
)

// A service manager gives a worker that is not root a cgroup of its own.
func TestADelegatedCgroupIsUsed(t *testing.T) {
	t.Parallel()
	need.Root(t)
	dir := filepath.Join(need.Cgroup(t), uniqueName("belay-test-delegated"))
	require.NoError(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		left, err := filepath.Glob(dir + "/belay.*")
		require.NoError(t, err)
		require.Len(t, left, 1)
		require.NoError(t, os.Remove(left[0]), "the steps of it are gone")
		// The supervisor is in the worker's cgroup and may end a moment after it.
		require.Eventually(t, func() bool { return os.Remove(dir) == nil }, patience, tick)
	})
	for _, file := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		require.NoError(t, os.Chown(filepath.Join(dir, file), nobody, nobody))
	}
	cgroup, err := os.Open(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, cgroup.Close()) }()

	cmd := unprivileged(t)
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(cgroup.Fd())
	cmd.Env = append(cmd.Env, helperEnv+"=worker", "WORKER_NODE=run/build/step", "WORKER_DIR=/",
		"WORKER_SCRIPT=grep ^0:: /proc/self/cgroup")
	out, err := cmd.Output()
	require.NoError(t, err)
	name := filepath.Base(dir)
	require.Contains(t, string(out), "/"+name+"/belay.")
	require.Contains(t, string(out), "/run_build_step.")
	require.Equal(t, 1, strings.Count(string(out), name))
}

// Hosts that were killed leave an empty cgroup; the next host removes it, and
// does a living one no harm by that.
func TestEmptyCgroupsOfHostsAreRemoved(t *testing.T) {
	t.Parallel()
	root := filepath.Join(need.Cgroup(t), uniqueName("belay-test-root"))
	require.NoError(t, os.Mkdir(root, 0o755))
	t.Cleanup(func() { require.NoError(t, os.Remove(root)) })
	idle := newHost(t, Options{CgroupRoot: root})
	busy := newHost(t, Options{CgroupRoot: root})
	job := script(t, `exec sleep `+forever)
	p := start(t, busy, job)
	require.NoError(t, os.Mkdir(filepath.Join(root, "other"), 0o755))
	t.Cleanup(func() { require.NoError(t, os.Remove(filepath.Join(root, "other"))) })

	newHost(t, Options{CgroupRoot: root})
	require.NoDirExists(t, string(idle.cgroups))
	require.DirExists(t, string(busy.cgroups))
	require.DirExists(t, filepath.Join(root, "other"))
	run(t, idle, script(t, `:`))
	require.NoError(t, idle.EndNode(t.Context(), "run"))
	p.Kill()
	require.Equal(t, "SIGKILL", wait(t, p).Signal)
}

func TestCgroupsThatAreTurnedOffAreNotUsed(t *testing.T) {
	t.Parallel()
	h := newHost(t, Options{NoCgroup: true})
	dir, why := h.Cgroup()
	require.Empty(t, dir)
	require.Equal(t, "cgroups are turned off", why)
}
