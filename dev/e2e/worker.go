package e2e

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/ports"
	"belay.run/internal/proc"
	"belay.run/worker/host"
)

// workerVariable makes the test binary a worker.
const workerVariable = "BELAY_E2E_WORKER"

// workerMain is what the main function of the worker does.
func workerMain() int {
	if code, done := proc.RunAsPID1(); done {
		return code
	}
	return host.Main(os.Args[1:], os.Stdout, os.Stderr)
}

// Worker is a worker in a process of its own, so that it can be killed. It
// serves the environment beside the one in the test's process.
type Worker struct {
	// StateDir is its state directory: a worker started on it again is the
	// same host.
	StateDir string

	t      *testing.T
	cmd    *exec.Cmd
	output output
	health string
	exited chan struct{}
	err    error // how it ended; read after exited
}

// StartWorker starts a worker process and returns when it takes work. Flags are
// further settings, labels among them: it takes the stages that ask for one of
// these and no others, which would end with it. It ends with the test.
func (e *Env) StartWorker(t *testing.T, stateDir string, flags ...string) *Worker {
	t.Helper()
	return e.StartWorkerAt(t, e.Temporal.Address(), stateDir, flags...)
}

// StartWorkerAt is StartWorker for a worker that reaches Temporal at another
// address, such as a link that can be cut.
func (e *Env) StartWorkerAt(t *testing.T, temporal, stateDir string, flags ...string) *Worker {
	t.Helper()
	return e.StartWorkerAs(t, func(*exec.Cmd) {}, temporal, stateDir, flags...)
}

// StartWorkerAs is StartWorkerAt for a worker whose process is another: of another
// user, say.
func (e *Env) StartWorkerAs(t *testing.T, another func(*exec.Cmd), temporal, stateDir string, flags ...string) *Worker {
	t.Helper()
	port, err := ports.Take(t.Context(), "a worker", "", "127.0.0.1", 0)
	require.NoError(t, err)
	defer port.Release()
	address := ports.Join("127.0.0.1", port.Number)
	w := &Worker{StateDir: stateDir, t: t, health: "http://" + address + "/readyz", exited: make(chan struct{})}
	w.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], append([]string{"--state-dir", stateDir, "--http-address", address, "--only-labels=true", "--light-allow=127.0.0.0/8,::1"}, flags...)...)
	w.cmd.Env = append(os.Environ(),
		workerVariable+"=1",
		"TEMPORAL_ADDRESS="+temporal, "TEMPORAL_NAMESPACE="+e.Temporal.Namespace(),
		"REDIS_URL="+e.Redis.URL, "BELAY_STORE="+e.StoreURL(),
	)
	w.cmd.Stdout, w.cmd.Stderr = &w.output, &w.output
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	another(w.cmd)
	require.NoError(t, w.cmd.Start(), "starting a worker")
	go func() {
		w.err = w.cmd.Wait()
		close(w.exited)
	}()
	t.Cleanup(func() {
		w.end()
		if t.Failed() {
			t.Logf("the worker said:\n%s", w.output.String())
		}
	})
	require.True(t, poll(t.Context(), Patience, w.ready), "the worker is not ready; it said:\n%s", w.output.String())
	return w
}

func (w *Worker) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.health, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// URL is where the worker answers by HTTP.
func (w *Worker) URL() string { return strings.TrimSuffix(w.health, "/readyz") }

// PID is the worker's process id.
func (w *Worker) PID() int { return w.cmd.Process.Pid }

// Kill ends the worker as a lost machine does: at once and without a word. It
// returns when the process is gone.
func (w *Worker) Kill() {
	w.t.Helper()
	require.NoError(w.t, w.cmd.Process.Kill())
	w.wait()
}

// Signal sends the worker a signal.
func (w *Worker) Signal(sig os.Signal) {
	w.t.Helper()
	require.NoError(w.t, w.cmd.Process.Signal(sig))
}

// WaitExit waits until the worker has ended by itself and returns its exit code.
func (w *Worker) WaitExit() int {
	w.t.Helper()
	w.wait()
	if exit, ok := errors.AsType[*exec.ExitError](w.err); ok {
		return exit.ExitCode()
	}
	require.NoError(w.t, w.err)
	return 0
}

// Output is what the worker has said so far.
func (w *Worker) Output() string { return w.output.String() }

func (w *Worker) wait() {
	w.t.Helper()
	select {
	case <-w.exited:
	case <-time.After(Patience):
		w.t.Fatalf("the worker has not ended within %s; it said:\n%s", Patience, w.output.String())
	}
}

// end ends what is left at the end of a test: in peace if it can.
func (w *Worker) end() {
	const patience = 20 * time.Second
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGKILL} {
		_ = w.cmd.Process.Signal(sig) // it may have ended
		select {
		case <-w.exited:
			return
		case <-time.After(patience / 2):
		}
	}
}

// output keeps what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write never fails.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(o.text.String())
}
