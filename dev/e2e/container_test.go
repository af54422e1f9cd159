package e2e_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
	"belay.run/internal/testkit/engine"
)

// contained starts a worker of its own with a container engine, on which nothing
// of it is left when the test ends.
func contained(t *testing.T, label, stateDir string) (*engine.Engine, *e2e.Worker) {
	t.Helper()
	eng := engine.Need(t)
	w := shared.Get(t).StartWorker(t, stateDir, "--labels", label, "--container-engine", eng.Address)
	return eng, w
}

// containersOf lists what of a run the engine has, networks included.
func containersOf(t *testing.T, eng *engine.Engine, runKey string) []string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	only := make(client.Filters).Add("label", "belay.run/run="+runKey)
	got, err := eng.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: only})
	require.NoError(t, err)
	var names []string
	for _, c := range got.Items {
		names = append(names, c.Names...)
	}
	nets, err := eng.NetworkList(ctx, client.NetworkListOptions{Filters: only})
	require.NoError(t, err)
	for _, n := range nets.Items {
		names = append(names, n.Name)
	}
	return names
}

func requireNoContainers(t *testing.T, eng *engine.Engine, runKey string) {
	t.Helper()
	require.Empty(t, containersOf(t, eng, runKey), "containers that should be gone")
}

func awaitNoContainers(t *testing.T, eng *engine.Engine, runKey string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(containersOf(t, eng, runKey)) == 0 }, e2e.Patience, 100*time.Millisecond)
}

const helloService = `
    services:
      - name: db
        image: {name: ` + engine.Image + `, pull: never}
        command: [nc, -ll, -p, "5432", -e, echo, hello]
        ports: [5432]
        health: {command: "netstat -ltn | grep -q :5432", interval: 200ms}
`

func TestContainersAndServices(t *testing.T) {
	t.Parallel()
	eng, _ := contained(t, "contains", t.TempDir())
	r := shared.Get(t).Run(t, on("contains", helloService+`
    steps:
      - {name: host, run: "echo from the host > shared; echo $BELAY_SERVICE_DB_HOST"}
      - name: inside
        image: {name: `+engine.Image+`, pull: never}
        env: {TAG: v1}
        outputs: [said]
        run: |
          cat shared
          echo "image $FROM_IMAGE $TAG"
          echo "said=$(nc "$BELAY_SERVICE_DB_HOST" "$BELAY_SERVICE_DB_PORT" </dev/null)" >> "$BELAY_OUTPUT"
      - name: fails
        image: {name: `+engine.Image+`, pull: never}
        on_failure: ignore
        retry: {max_attempts: 3, initial_interval: 10ms}
        run: exit 3
`))
	doc := r.Wait()
	requireNoContainers(t, eng, doc.RunKey)
	require.Equal(t, run.Succeeded, doc.Status)
	nodes := e2e.Nodes(doc)
	require.Equal(t, map[string]string{"said": "hello"}, nodes["s/inside"].Outputs)
	require.Equal(t, 3, *nodes["s/fails"].ExitCode)
	require.Equal(t, 3, nodes["s/fails"].Attempts)
	require.Contains(t, r.Log("s/inside"), "from the host\nimage yes v1\n")
	require.Contains(t, r.Log("s/host"), "127.0.0.1")
}

func TestCancelRemovesContainers(t *testing.T) {
	t.Parallel()
	eng, _ := contained(t, "contains-cancel", t.TempDir())
	r := shared.Get(t).Run(t, on("contains-cancel", helloService+`
    steps:
      - name: group
        parallel:
          - {name: tidies, image: {name: `+engine.Image+`, pull: never}, grace_period: 30s, run: "trap 'echo tidied; exit 1' TERM; echo ready; sleep 600"}
          - {name: stays, image: {name: `+engine.Image+`, pull: never}, grace_period: 1s, run: "trap '' TERM; echo ready; while :; do sleep 1; done"}
    finally:
      - {name: last, image: {name: `+engine.Image+`, pull: never}, run: nc db 5432 </dev/null}
`))
	r.WaitLog("s/tidies", "ready")
	r.WaitLog("s/stays", "ready")
	r.Cancel("enough")
	doc := r.Wait()
	requireNoContainers(t, eng, doc.RunKey)
	require.Equal(t, run.Cancelled, doc.Status)
	require.Contains(t, r.Log("s/tidies"), "tidied")
	require.Contains(t, r.Log("s/last"), "hello")
}

func TestServiceThatDoesNotComeUpFailsItsStage(t *testing.T) {
	t.Parallel()
	eng, _ := contained(t, "contains-broken", t.TempDir())
	r := shared.Get(t).Run(t, on("contains-broken", `
    services:
      - {name: db, image: {name: `+engine.Image+`, pull: never}, command: [sh, -c, "echo no disk; exit 4"], health: {command: "exit 1"}}
    steps:
      - {name: a, run: echo never}
`))
	doc := r.Wait()
	requireNoContainers(t, eng, doc.RunKey)
	require.Equal(t, run.Failed, doc.Status)
	require.Equal(t, run.TriggerDependencyUnavailable, doc.Cause.Trigger)
	require.Contains(t, doc.Cause.Message, "no disk")
}

// TestHealthCheckThatHangs is of the kind of dagucloud/dagu#2566, a command that goes
// on in a container after its time: nothing of it is left, also not when the run is
// cancelled meanwhile.
func TestHealthCheckThatHangs(t *testing.T) {
	t.Parallel()
	eng, _ := contained(t, "hangs", t.TempDir())
	start := func(t *testing.T, mark, timeout string) *e2e.Run {
		t.Helper()
		return shared.Get(t).Run(t, on("hangs", `
    services:
      - name: db
        image: {name: `+engine.Image+`, pull: never}
        command: [sleep, "3600"]
        health: {command: "sleep `+mark+`", timeout: `+timeout+`}
    steps: [{name: a, run: echo a}]
`))
	}
	t.Run("TimedOut", func(t *testing.T) {
		t.Parallel()
		mark := seconds(355)
		doc := start(t, mark, "3s").Wait()
		require.Empty(t, marked(t, mark))
		requireNoContainers(t, eng, doc.RunKey)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, run.TriggerDependencyUnavailable, doc.Cause.Trigger)
	})
	t.Run("Cancelled", func(t *testing.T) {
		t.Parallel()
		mark := seconds(356)
		r := start(t, mark, "10m")
		require.Eventually(t, func() bool { return len(marked(t, mark)) > 0 }, e2e.Patience, 50*time.Millisecond, "the check does not run")
		r.Cancel("enough")
		doc := r.Wait()
		require.Empty(t, marked(t, mark))
		requireNoContainers(t, eng, doc.RunKey)
		require.Equal(t, run.Cancelled, doc.Status)
	})
}

// TestKilledWorkerTakesItsContainersAlong: the client of a container ends it when
// the worker is gone; the services go when the host is back.
func TestKilledWorkerTakesItsContainersAlong(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	eng, w := contained(t, "contains-killed", state)
	r := shared.Get(t).Run(t, on("contains-killed", helloService+`
    steps:
      - {name: a, image: {name: `+engine.Image+`, pull: never}, grace_period: 1s, run: "echo ready; sleep 600"}
`))
	r.WaitLog("s/a", "ready")
	key := r.Document().RunKey
	w.Kill()
	require.Eventually(t, func() bool {
		return !strings.Contains(strings.Join(containersOf(t, eng, key), " "), "s-a")
	}, e2e.Patience, 100*time.Millisecond, "the container of the step")
	require.Equal(t, run.Failed, r.Wait().Status)
	contained(t, "contains-killed", state)
	awaitNoContainers(t, eng, key)
}

// TestReturningWorkerRemovesWhatWasKilledWithIt: worker, supervisor and client
// are killed together, so that nobody is left to remove the container.
func TestReturningWorkerRemovesWhatWasKilledWithIt(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	eng, w := contained(t, "contains-all", state)
	r := shared.Get(t).Run(t, on("contains-all", `
    steps:
      - {name: a, image: {name: `+engine.Image+`, pull: never}, grace_period: 1s, run: "echo ready; sleep 600"}
`))
	r.WaitLog("s/a", "ready")
	key := r.Document().RunKey
	clients := marked(t, filepath.Join(state, "stages"))
	require.NotEmpty(t, clients, "the client has its job from there")
	w.Signal(syscall.SIGSTOP) // it notices nothing
	for _, pid := range clients {
		if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			require.NoError(t, err) // the supervisor's death takes its children along
		}
	}
	w.Kill()
	require.NotEmpty(t, containersOf(t, eng, key))
	contained(t, "contains-all", state)
	awaitNoContainers(t, eng, key)
	r.Wait()
}

// TestContainersOutliveSweeps: what a host looks for every 15 seconds is what
// nobody holds any more.
func TestContainersOutliveSweeps(t *testing.T) {
	t.Parallel()
	eng, _ := contained(t, "contains-long", t.TempDir())
	r := shared.Get(t).Run(t, on("contains-long", `
    steps:
      - {name: a, image: {name: `+engine.Image+`, pull: never}, run: "sleep 20; echo over"}
`))
	doc := r.Wait()
	requireNoContainers(t, eng, doc.RunKey)
	require.Equal(t, run.Succeeded, doc.Status, doc.Cause)
}
