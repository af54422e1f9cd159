package container_test

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"belay.run/internal/container"
	"belay.run/internal/testkit/engine"
)

// patience bounds what is broken only.
const patience = 2 * time.Minute

// kit is a host of its own on the engine.
type kit struct {
	*container.Host
	engine *engine.Engine
	hostID string
	runKey string
}

func setup(t *testing.T) *kit {
	t.Helper()
	e := engine.Need(t)
	k := &kit{engine: e, hostID: "host-" + uuid.NewString(), runKey: uuid.NewString()}
	k.Host = k.host(t)
	t.Cleanup(func() { // a test that failed leaves nothing either
		for _, node := range []string{"build", "other"} {
			require.NoError(t, k.RemoveNode(context.WithoutCancel(t.Context()), k.runKey, node))
		}
	})
	return k
}

// host is the host as one more worker process would have it.
func (k *kit) host(t *testing.T) *container.Host {
	t.Helper()
	h, err := container.New(container.Options{Address: k.engine.Address, HostID: k.hostID})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

func (k *kit) owner(node string) container.Owner {
	stage, _, _ := strings.Cut(node, "/")
	return container.Owner{RunKey: k.runKey, Stage: stage, WorkflowID: "w-" + stage, Node: node}
}

// job is a container that runs a script.
func (k *kit) job(t *testing.T, node, script string, edit ...func(*container.Job)) container.Job {
	t.Helper()
	job := k.Job(k.owner(node), 1, 0)
	job.Image = container.Image{Name: engine.Image, Pull: container.PullNever}
	job.Argv = []string{"/bin/sh", "-e", "-c", script}
	job.Dir, job.Grace = "/", time.Second
	job.Report = filepath.Join(t.TempDir(), "report")
	for _, f := range edit {
		f(&job)
	}
	return job
}

// running is a client that runs.
type running struct {
	t        *testing.T
	job      container.Job
	cmd      *exec.Cmd
	out, err safeBuffer
}

// start starts the client of a job, as a supervisor does.
func (k *kit) start(t *testing.T, job container.Job) *running {
	t.Helper()
	argv, err := job.Command(filepath.Join(t.TempDir(), "job"))
	require.NoError(t, err)
	r := &running{t: t, job: job, cmd: exec.Command(argv[0], argv[1:]...)}
	r.cmd.Env = []string{}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.err
	require.NoError(t, r.cmd.Start())
	return r
}

// wait waits for the client's end: its exit code and report.
func (r *running) wait() (int, container.Report) {
	r.t.Helper()
	last := time.AfterFunc(patience, func() { _ = r.cmd.Process.Kill() })
	defer last.Stop()
	_ = r.cmd.Wait() // the code says it
	report, err := container.ReadReport(r.job.Report)
	require.NoError(r.t, err)
	return r.cmd.ProcessState.ExitCode(), report
}

// run runs a job to its end and makes sure that its container is gone.
func (k *kit) run(t *testing.T, job container.Job) (*running, int, container.Report) {
	t.Helper()
	r := k.start(t, job)
	code, report := r.wait()
	require.False(t, k.exists(t, job.Name), "the container is still there")
	return r, code, report
}

func (k *kit) exists(t *testing.T, name string) bool {
	t.Helper()
	_, err := k.engine.ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
	return err == nil
}

// left lists the names of what the host has on the engine.
func (k *kit) left(t *testing.T) []string {
	t.Helper()
	only := make(client.Filters).Add("label", "belay.run/host="+k.hostID)
	var names []string
	containers, err := k.engine.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: only})
	require.NoError(t, err)
	for _, c := range containers.Items {
		names = append(names, c.Names...)
	}
	networks, err := k.engine.NetworkList(t.Context(), client.NetworkListOptions{Filters: only})
	require.NoError(t, err)
	for _, n := range networks.Items {
		names = append(names, n.Name)
	}
	return names
}

// await waits until a condition is met.
func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	require.Eventually(t, met, patience, 10*time.Millisecond, what)
}

// safeBuffer is a buffer that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
