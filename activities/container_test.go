package activities_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/container"
	"belay.run/internal/run"
	"belay.run/internal/spec"
	"belay.run/internal/testkit/engine"
)

// contained gives the host a container engine, on which nothing of it is left
// when the test ends.
func (h *host) contained(t *testing.T, policy container.Policy) *engine.Engine {
	t.Helper()
	e := engine.Need(t)
	c, err := container.New(container.Options{Address: e.Address, HostID: h.steps.Host.ID(), Policy: policy})
	require.NoError(t, err)
	h.steps.Containers = c
	h.steps.Resources.Kinds = append(h.steps.Resources.Kinds, c)
	t.Cleanup(func() {
		require.Empty(t, h.containers(context.WithoutCancel(t.Context()), t, e), "left on the engine")
		require.NoError(t, c.Close())
	})
	return e
}

func (h *host) containers(ctx context.Context, t *testing.T, e *engine.Engine) []string {
	t.Helper()
	got, err := e.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", "belay.run/host="+h.steps.Host.ID()),
	})
	require.NoError(t, err)
	var names []string
	for _, c := range got.Items {
		names = append(names, c.Names...)
	}
	return names
}

// in runs the step in a container.
func in(edit ...func(*spec.Container)) func(*activities.StepInput) {
	return func(in *activities.StepInput) {
		c := &spec.Container{Image: spec.Image{Name: engine.Image, Pull: spec.PullNever}}
		for _, f := range edit {
			f(c)
		}
		in.Step.Container = c
	}
}

func TestRunStepInAContainer(t *testing.T) {
	t.Parallel()

	t.Run("SeesTheWorkspaceAndItsEnvironmentAndHandsOverOutputs", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		h.steps.Environment = append(h.steps.Environment, "HTTPS_PROXY=http://proxy", "LANG=xx")
		require.NoError(t, os.WriteFile(filepath.Join(h.dirs.Workspace, "given"), []byte("here\n"), 0o644))
		res, err := h.run(t, h.input(`pwd; cat given; echo "$GREETING $FROM_IMAGE $PATH $HTTPS_PROXY [$LANG]"
			test "$BELAY_NODE" = k1/build/s; echo out > made; touch "$TMPDIR/x" "$HOME/y" "$BELAY_CACHE/z"; echo "digest=abc" >> "$BELAY_OUTPUT"; echo err >&2`,
			in(), func(in *activities.StepInput) {
				in.Env, in.Step.Outputs = map[string]string{"GREETING": "hi"}, []string{"digest"}
			}))
		require.NoError(t, err)
		require.Equal(t, 0, *res.ExitCode)
		require.Equal(t, map[string]string{"digest": "abc"}, res.Outputs)
		require.Empty(t, res.Notes)
		require.Contains(t, h.output(t), h.dirs.Workspace+"\nhere\nhi yes /bin http://proxy []\n")
		require.Contains(t, h.output(t), "err\n")
		require.FileExists(t, filepath.Join(h.dirs.Workspace, "made"))
		require.Contains(t, kinds(res.Resources), "container released")
		left, err := os.ReadDir(h.dirs.Temp)
		require.NoError(t, err)
		require.Empty(t, left)
	})

	t.Run("FailsWithItsExitCode", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		res, err := h.run(t, h.input("exit 7", in()))
		requireTrigger(t, run.TriggerExitCode, err, true)
		require.Equal(t, 7, *res.ExitCode)
	})

	t.Run("RunsEachCommandInAContainerOfItsOwn", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		_, err := h.run(t, h.input("", in(), func(in *activities.StepInput) {
			in.Step.Run = []spec.Command{{Script: "touch /tmp/first; echo one"}, {Script: "test ! -e /tmp/first; echo two"}, {Script: "sleep 600", Timeout: 2 * time.Second}}
		}))
		requireTrigger(t, run.TriggerCommandTimeout, err, false)
		require.Contains(t, h.output(t), "one\ntwo\n")
	})

	t.Run("IsEndedByACancelWithItsGrace", func(t *testing.T) {
		t.Parallel()
		h := setup(t, temporal.NewCanceledError())
		h.contained(t, container.Policy{})
		_, err := h.run(t, h.input(`trap 'echo tidied; exit 5' TERM; echo ready; sleep 600`, in(), func(in *activities.StepInput) { in.Step.GracePeriod = time.Minute }))
		require.True(t, temporal.IsCanceledError(err), "%v", err)
	})

	t.Run("IsEndedAtItsTimeout", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		_, err := h.run(t, h.input("echo begun; sleep 600", in(), func(in *activities.StepInput) { in.Step.Timeout = 3 * time.Second }))
		requireTrigger(t, run.TriggerStepTimeout, err, false)
	})

	t.Run("GetsSecretsWhichAreMasked", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		_, err := h.run(t, h.input(`test -n "$TOKEN"; echo "it is $TOKEN"`, in(), func(in *activities.StepInput) { in.Step.Secrets = []string{"TOKEN"} }))
		require.NoError(t, err)
		require.Contains(t, h.output(t), "it is ***")
	})

	t.Run("GetsNoPasswordOfARegistry", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		_, err := h.run(t, h.input(`test -z "$TOKEN"`, in(func(c *spec.Container) { c.Image.Login = &spec.Login{Username: "ci", Password: "TOKEN"} })))
		require.NoError(t, err)
	})

	t.Run("MaySetWhatTheImageSets", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		_, err := h.run(t, h.input(`echo "$PATH"`, in(), func(in *activities.StepInput) { in.Env = map[string]string{"PATH": "/bin:/own"} }))
		require.NoError(t, err)
		require.Contains(t, h.output(t), "/bin:/own\n")
	})

	t.Run("HasAnEntrypointAndAUser", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		_, err := h.run(t, h.input(`echo "$WHO $(id -u)"`, in(func(c *spec.Container) { c.Entrypoint, c.User = []string{"env", "WHO=me"}, "0" })))
		require.NoError(t, err)
		require.Contains(t, h.output(t), "me 0\n")
	})

	t.Run("OverItsMemoryIsOverALimit", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		_, err := h.run(t, h.input("tail /dev/zero", in(), func(in *activities.StepInput) { in.Step.Limits = &spec.Limits{Memory: 16 << 20} }))
		requireTrigger(t, run.TriggerLimitExceeded, err, false)
	})

	t.Run("MayMountOnlyWhatTheWorkerAllows", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		allowed := t.TempDir()
		require.NoError(t, os.Symlink("/etc", filepath.Join(allowed, "out")))
		h.contained(t, container.Policy{Mounts: []string{allowed}})
		mount := func(source string) func(*activities.StepInput) {
			return in(func(c *spec.Container) { c.Mounts = []spec.Mount{{Source: source, Target: "/mnt"}} })
		}
		_, err := h.run(t, h.input("touch /mnt/x", mount(allowed)))
		require.NoError(t, err)
		for _, source := range []string{"/etc", allowed + "-other", filepath.Join(allowed, "out")} {
			_, err = h.run(t, h.input(":", mount(source)))
			requireTrigger(t, run.TriggerInvalid, err, false)
			require.ErrorContains(t, err, "container_mounts")
		}
	})

	t.Run("IsPrivilegedOnlyWhereTheWorkerAllowsThat", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		_, err := h.run(t, h.input(":", in(func(c *spec.Container) { c.Privileged = true })))
		requireTrigger(t, run.TriggerInvalid, err, false)
		require.ErrorContains(t, err, "container_privileged")
	})

	t.Run("NeedsAFolderThatIsThere", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		_, err := h.run(t, h.input(":", in(), func(in *activities.StepInput) { in.Step.WorkingDir = "gone" }))
		requireTrigger(t, run.TriggerInvalid, err, false)
		require.NoDirExists(t, filepath.Join(h.dirs.Workspace, "gone"))
	})

	t.Run("NeedsAnImageThatIsThere", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		h.contained(t, container.Policy{})
		_, err := h.run(t, h.input(":", in(func(c *spec.Container) { c.Image.Name = "belay-test/none:1" })))
		requireTrigger(t, run.TriggerInvalid, err, false)
	})
}

func TestRunStepWithoutAnEngine(t *testing.T) {
	t.Parallel()

	t.Run("OnTheHost", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		_, err := h.run(t, h.input(":", in()))
		requireTrigger(t, run.TriggerDependencyUnavailable, err, false)
		require.ErrorContains(t, err, "container_engine")
	})

	t.Run("ThatAnswers", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		c, err := container.New(container.Options{Address: "unix://" + filepath.Join(t.TempDir(), "none.sock"), HostID: "h"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		h.steps.Containers = c
		h.steps.Resources.Kinds = append(h.steps.Resources.Kinds, c)
		res, err := h.run(t, h.input(":", in()))
		requireTrigger(t, run.TriggerDependencyUnavailable, err, true)
		require.Len(t, res.Unreleased, 1, "the engine may have it")
	})
}

func kinds(list []run.Resource) []string {
	var out []string
	for _, r := range list {
		out = append(out, r.Kind+" "+string(r.State))
	}
	return out
}

func TestServicesOfAStage(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	e := h.contained(t, container.Policy{})
	input := activities.ServicesInput{Owner: h.owner, Services: []spec.Service{{
		Name: "my-db", Image: spec.Image{Name: engine.Image, Pull: spec.PullNever}, Ports: []int{5432},
		Command: []string{"/bin/sh", "-c", `test "$TOKEN" = s3cr3t-value; exec nc -ll -p 5432 -e echo "hello $NAME"`},
		Env:     map[string]string{"NAME": "you"}, Secrets: []string{"TOKEN"},
		Health: spec.Health{Command: "netstat -ltn | grep -q :5432", Interval: 200 * time.Millisecond, Timeout: time.Minute},
	}}}
	var addresses []activities.ServiceAddress
	got, err := h.env.ExecuteActivity(h.steps.StartServices, input)
	require.NoError(t, err)
	require.NoError(t, got.Get(&addresses))

	with := func(in *activities.StepInput) { in.Services = addresses }
	_, err = h.run(t, h.input(`nc "$BELAY_SERVICE_MY_DB_HOST" "$BELAY_SERVICE_MY_DB_PORT" </dev/null; test "$BELAY_SERVICE_MY_DB_PORT_5432" = 5432`, in(), with))
	require.NoError(t, err)
	require.Equal(t, "hello you\n", h.output(t))
	_, err = h.run(t, h.input(`echo "at $BELAY_SERVICE_MY_DB_HOST:$BELAY_SERVICE_MY_DB_PORT"`, with))
	require.NoError(t, err)
	_, at, _ := strings.Cut(h.output(t), "at ")
	conn, err := net.Dial("tcp", strings.TrimSpace(at))
	require.NoError(t, err)
	require.NoError(t, conn.Close())

	input.Services[0].Command = []string{"/bin/sh", "-c", `echo "no $TOKEN"; exit 3`}
	_, err = h.env.ExecuteActivity(h.steps.StartServices, input)
	requireTrigger(t, run.TriggerDependencyUnavailable, err, false)
	require.ErrorContains(t, err, "no ***")
	input.Services[0].Image.Name = "belay-test/none:1"
	_, err = h.env.ExecuteActivity(h.steps.StartServices, input)
	requireTrigger(t, run.TriggerInvalid, err, false)

	for range 2 {
		_, err = h.env.ExecuteActivity(h.steps.Release, h.owner)
		require.NoError(t, err)
	}
	require.Empty(t, h.containers(t.Context(), t, e))
	require.NoDirExists(t, h.dirs.Root)
}

// A step can remove the folders around its workspace: what the engine has of the
// stage is removed all the same.
func TestReleaseRemovesServicesAlsoWhereTheStagesFoldersAreGone(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	e := h.contained(t, container.Policy{})
	_, err := h.env.ExecuteActivity(h.steps.StartServices, activities.ServicesInput{Owner: h.owner, Services: []spec.Service{{
		Name: "db", Image: spec.Image{Name: engine.Image, Pull: spec.PullNever}, Command: []string{"sleep", "600"},
		Health: spec.Health{Interval: 200 * time.Millisecond, Timeout: time.Minute},
	}}})
	require.NoError(t, err)
	require.NotEmpty(t, h.containers(t.Context(), t, e))
	require.NoError(t, os.RemoveAll(h.dirs.Root))
	_, err = h.env.ExecuteActivity(h.steps.Release, h.owner)
	require.NoError(t, err)
	require.Empty(t, h.containers(t.Context(), t, e))
}
