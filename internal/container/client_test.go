package container_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"belay.run/internal/container"
)

func TestClient(t *testing.T) {
	t.Parallel()

	t.Run("RunsTheScriptAndPassesOnOutputAndCode", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		r, code, report := k.run(t, k.job(t, "build/s", `echo "out $GREETING $FROM_IMAGE"; echo err >&2; pwd; exit 7`, func(j *container.Job) {
			j.Env, j.Dir = []string{"GREETING=hi"}, "/tmp"
		}))
		require.Equal(t, 7, code)
		require.Zero(t, report)
		require.Equal(t, "out hi yes\n/tmp\n", r.out.String())
		require.Equal(t, "err\n", r.err.String())
	})

	t.Run("PassesOnABurstWhole", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		const size = 1 << 20
		r, code, _ := k.run(t, k.job(t, "build/s", `head -c 1048576 /dev/zero | tr '\0' x`))
		require.Zero(t, code)
		require.Len(t, r.out.String(), size)
	})

	t.Run("RemovesTheFileOfTheJobBeforeTheContainerStarts", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		dir := t.TempDir()
		job := k.job(t, "build/s", "ls /jobs; sleep 60", func(j *container.Job) {
			j.Mounts = []container.Mount{{Source: dir, Target: "/jobs"}}
		})
		argv, err := job.Command(filepath.Join(dir, "job"))
		require.NoError(t, err)
		info, err := os.Stat(filepath.Join(dir, "job"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		require.Len(t, argv, 3)
		r := k.start(t, job)
		await(t, "it runs", func() bool { return k.isRunning(t, job.Name) })
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
		_, _ = r.wait()
	})

	t.Run("MountsFoldersReadOnlyWhereAsked", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		dir := t.TempDir()
		_, code, _ := k.run(t, k.job(t, "build/s", "echo x > /w/made; if echo x > /r/made; then exit 9; fi", func(j *container.Job) {
			j.Mounts = []container.Mount{{Source: dir, Target: "/w"}, {Source: dir, Target: "/r", ReadOnly: true}}
		}))
		require.Zero(t, code)
		require.FileExists(t, filepath.Join(dir, "made"))
	})

	t.Run("EndsByTERMWithTimeToTidyUp", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		job := k.job(t, "build/s", `trap 'echo tidied; exit 5' TERM; echo ready; sleep 600 & wait`, func(j *container.Job) { j.Grace = patience })
		r := k.start(t, job)
		await(t, "it is ready", func() bool { return strings.Contains(r.out.String(), "ready") })
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
		code, _ := r.wait()
		require.Equal(t, 5, code)
		require.Contains(t, r.out.String(), "tidied")
		require.False(t, k.exists(t, job.Name))
	})

	t.Run("ReachesAllOfTheScriptByTERM", func(t *testing.T) {
		t.Parallel()
		// The shell waits for sleep: if only the shell heard the signal, the
		// trap would run when sleep is over.
		k := setup(t)
		job := k.job(t, "build/s", `trap 'echo tidied; exit 5' TERM; echo ready; sleep 600`, func(j *container.Job) { j.Grace = patience })
		r := k.start(t, job)
		await(t, "it is ready", func() bool { return strings.Contains(r.out.String(), "ready") })
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
		_, _ = r.wait()
		require.Contains(t, r.out.String(), "tidied")
	})

	t.Run("KillsWhatIgnoresTERMWhenTheGraceIsOver", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		job := k.job(t, "build/s", `trap '' TERM; echo ready; while :; do sleep 1; done`, func(j *container.Job) { j.Grace = 300 * time.Millisecond })
		r := k.start(t, job)
		await(t, "it is ready", func() bool { return strings.Contains(r.out.String(), "ready") })
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
		code, _ := r.wait()
		require.Equal(t, 137, code)
		require.False(t, k.exists(t, job.Name))
	})

	t.Run("EndsWhenSomebodyRemovesItsContainer", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		job := k.job(t, "build/s", "echo ready; sleep 600")
		r := k.start(t, job)
		await(t, "it is ready", func() bool { return strings.Contains(r.out.String(), "ready") })
		require.NoError(t, k.Remove(t.Context(), job.Name))
		code, _ := r.wait()
		require.Equal(t, 137, code)
	})

	t.Run("TakesThePlaceOfWhatAKilledClientLeft", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		job := k.job(t, "build/s", "echo ready; sleep 600")
		r := k.start(t, job)
		await(t, "it is ready", func() bool { return strings.Contains(r.out.String(), "ready") })
		require.NoError(t, r.cmd.Process.Kill())
		_, _ = r.wait()
		require.True(t, k.isRunning(t, job.Name))
		_, code, _ := k.run(t, k.job(t, "build/s", "exit 3"))
		require.Equal(t, 3, code)
	})

	t.Run("IsTheUserOfTheWorkerOrWhoeverIsNamed", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		r, _, _ := k.run(t, k.job(t, "build/s", "id -u"))
		require.Equal(t, "0\n", r.out.String())
		r, _, _ = k.run(t, k.job(t, "build/s", "id -u; id -g", func(j *container.Job) { j.User = "1234:5678" }))
		require.Equal(t, "1234\n5678\n", r.out.String())
	})

	t.Run("HoldsToItsLimits", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		job := k.job(t, "build/s", "echo ready; sleep 600", func(j *container.Job) {
			j.Limits = container.Limits{CPUs: 0.5, Memory: 64 << 20, PIDs: 50}
		})
		r := k.start(t, job)
		await(t, "it is ready", func() bool { return strings.Contains(r.out.String(), "ready") })
		got, err := k.engine.ContainerInspect(t.Context(), job.Name, client.ContainerInspectOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 64<<20, got.Container.HostConfig.Memory)
		require.EqualValues(t, 500_000_000, got.Container.HostConfig.NanoCPUs)
		require.EqualValues(t, 50, *got.Container.HostConfig.PidsLimit)
		require.False(t, got.Container.HostConfig.Privileged)
		require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
		_, _ = r.wait()
	})

	t.Run("SaysThatItWasOverItsMemory", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		for _, script := range []string{"tail /dev/zero", "tail /dev/zero | cat"} {
			_, _, report := k.run(t, k.job(t, "build/s", script, func(j *container.Job) { j.Limits.Memory = 16 << 20 }))
			require.Equal(t, container.FaultMemory, report.Fault, "%s: whatever exit code it leaves", script)
			require.Contains(t, report.Message, "16MiB")
		}
	})

	t.Run("SaysWhatIsWrongWithTheFile", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		_, _, report := k.run(t, k.job(t, "build/s", ":", func(j *container.Job) { j.Image.Name = "belay-test/none:1" }))
		require.Equal(t, container.FaultInvalid, report.Fault)
		require.Contains(t, report.Message, "belay-test/none:1")
		r, code, report := k.run(t, k.job(t, "build/s", ":", func(j *container.Job) { j.Argv = []string{"/bin/no-such-shell"} }))
		require.Equal(t, 127, code, report.Message)
		require.Contains(t, r.err.String(), "no-such-shell")
	})

	t.Run("SaysThatTheEngineIsAway", func(t *testing.T) {
		t.Parallel()
		k := setup(t)
		_, code, report := k.run(t, k.job(t, "build/s", ":", func(j *container.Job) { j.Engine = "unix://" + filepath.Join(t.TempDir(), "none.sock") }))
		require.Equal(t, 125, code)
		require.Equal(t, container.FaultUnavailable, report.Fault)
	})
}

func (k *kit) isRunning(t *testing.T, name string) bool {
	t.Helper()
	got, err := k.engine.ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
	return err == nil && got.Container.State.Running
}
