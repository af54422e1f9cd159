package host

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"belay.run/internal/redistest"
	"belay.run/internal/resource"
	"belay.run/internal/run"
)

// drainOf drains in the background.
func drainOf(ctx context.Context, w *Worker) <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.Drain(ctx) }()
	return done
}

func stillDrains(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		require.Fail(t, "it ended too early", "%v", err)
	default:
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()

	t.Run("WithNothingBoundItIsDone", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		w := startWorker(t, f)
		require.NoError(t, <-drainOf(t.Context(), w))
		require.Equal(t, StatusDraining, w.Health().Status)
	})

	t.Run("BeforeStartItIsDone", func(t *testing.T) {
		t.Parallel()
		w := newWorker(t, Config{Settings: settingsFor(t)})
		require.NoError(t, w.Drain(t.Context()))
	})

	t.Run("WaitsForWhatIsBoundAndTakesNoMore", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		w := startWorker(t, f, "--labels=gpu")
		bind(t, f, w, "build")
		eventually(t, func() bool { return len(f.queues()) >= 6 }, "all queues are polled")
		done := drainOf(t.Context(), w)
		eventually(t, func() bool {
			for _, q := range f.queues() {
				if strings.HasPrefix(q, "belay-steps") {
					return false
				}
			}
			return true
		}, "the shared queues of steps are polled no more")
		stillDrains(t, done)
		require.Subset(t, f.queues(), []string{w.Queue(), "belay-workflows", "belay-light"}, "what bound stages need goes on")

		require.NoError(t, w.host.Release(t.Context(), "run", "build"))
		stillDrains(t, done) // its workflow has a last decision to take
		f.set("wf/build", completed)
		require.NoError(t, <-done)
		require.Empty(t, f.cancelled())
	})

	t.Run("CancelsWhatDoesNotEndInTime", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		w := startWorker(t, f, "--drain-timeout=0")
		bind(t, f, w, "build")
		f.onCancel = func(id string) {
			// Its finally steps and its release run here first.
			require.NoError(t, w.host.Release(t.Context(), "run", "build"))
			f.set(id, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED)
		}
		require.NoError(t, <-drainOf(t.Context(), w))
		cancels := f.cancelled()
		require.Len(t, cancels, 1, "one request, however long it takes")
		require.Equal(t, "wf/build", cancels[0].GetWorkflowExecution().GetWorkflowId())
		require.True(t, strings.HasPrefix(cancels[0].GetReason(), "maintenance: "), cancels[0].GetReason())
		require.Equal(t, w.identity, cancels[0].GetIdentity())
		require.NotEmpty(t, cancels[0].GetRequestId())
	})

	t.Run("AStageThatEndedWithoutReleaseIsSwept", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		w := startWorker(t, f)
		dirs := bind(t, f, w, "build")
		done := drainOf(t.Context(), w)
		f.set("wf/build", enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED)
		require.NoError(t, <-done)
		require.NoDirExists(t, dirs.Root)
	})

	t.Run("EndsEarlyWithItsContext", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		w := startWorker(t, f)
		dirs := bind(t, f, w, "build")
		ctx, hurry := context.WithCancelCause(t.Context())
		done := drainOf(ctx, w)
		hurry(errors.New("hurry up"))
		require.ErrorContains(t, <-done, "hurry up")
		require.NoError(t, stopNow(w))
		require.DirExists(t, dirs.Workspace)
	})
}

func TestEnded(t *testing.T) {
	t.Parallel()
	f := serveTemporal(t, "")
	w := startWorker(t, f)
	bind(t, f, w, "s")
	bindings, err := w.host.Bindings()
	require.NoError(t, err)
	for status, want := range map[enumspb.WorkflowExecutionStatus]bool{
		enumspb.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED:      false,
		enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:          false,
		enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED:           false,
		enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW: false,
		enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:        true,
		enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:           true,
		enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED:         true,
		enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:       true,
		enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:        true,
	} {
		f.set("wf/s", status)
		ended, err := w.stages.ended(t.Context(), bindings[0])
		require.NoError(t, err)
		require.Equal(t, want, ended, status)
	}
	f.setSilent(true)
	_, err = w.stages.ended(t.Context(), bindings[0])
	require.Error(t, err, "an error is no answer")
}

func TestSweepKeepsWhatTemporalDoesNotAnswerFor(t *testing.T) {
	t.Parallel()
	f := serveTemporal(t, "")
	w := startWorker(t, f)
	dirs := bind(t, f, w, "build")
	f.set("wf/build", completed)
	f.setSilent(true)
	w.stages.sweep(t.Context())
	require.DirExists(t, dirs.Workspace)
	f.setSilent(false)
	w.stages.sweep(t.Context())
	require.NoDirExists(t, dirs.Root)
}

func TestSweepWritesDownThatItGaveBackAWorkspaceThatWasLeaked(t *testing.T) {
	t.Parallel()
	f := serveTemporal(t, "")
	w := startWorker(t, f, "--redis-url", redistest.Start(t).URL)
	dirs := bind(t, f, w, "build")
	e := resource.Entry{
		Owner: resource.Owner{RunKey: "run", WorkflowID: "wf", Node: "build"}, Kind: resource.KindWorkspace, Name: w.ID(),
		Scope: resource.ScopeStage, State: run.ResourceLeaked, Host: w.ID(), Since: time.Now(), Error: "the host does not answer",
	}
	other := e
	other.Host, other.Name = "other", "other"
	for _, e := range []resource.Entry{e, other} {
		require.NoError(t, w.deps.ledger.Note(t.Context(), e))
	}
	states := func() map[string]run.ResourceState {
		all, err := w.deps.ledger.Of(t.Context(), "run")
		require.NoError(t, err)
		out := map[string]run.ResourceState{}
		for _, e := range all {
			out[e.Name] = e.State
		}
		return out
	}
	w.stages.sweep(t.Context())
	require.Equal(t, run.ResourceLeaked, states()[w.ID()], "the stage is open")
	f.set("wf/build", completed)
	w.stages.sweep(t.Context())
	require.NoDirExists(t, dirs.Root)
	require.Equal(t, map[string]run.ResourceState{w.ID(): run.ResourceReleased, "other": run.ResourceLeaked}, states())
}

// TestSweepKeepsAWorkspaceAsLongAsItsContainersMayBeThere: it stands for them in the
// ledger.
func TestSweepKeepsAWorkspaceAsLongAsItsContainersMayBeThere(t *testing.T) {
	t.Parallel()
	f := serveTemporal(t, "")
	socket := filepath.Join(t.TempDir(), "engine")
	w := startWorker(t, f, "--redis-url", redistest.Start(t).URL, "--container-engine", "unix://"+socket)
	dirs := bind(t, f, w, "build")
	require.NoError(t, os.WriteFile(filepath.Join(dirs.Root, "containers"), nil, 0o600))
	plain := bind(t, f, w, "plain")
	e := resource.Entry{
		Owner: resource.Owner{RunKey: "run", WorkflowID: "wf", Node: "build"}, Kind: resource.KindWorkspace, Name: w.ID(),
		Scope: resource.ScopeStage, State: run.ResourceLeaked, Host: w.ID(), Since: time.Now(), Error: "the engine is away",
	}
	require.NoError(t, w.deps.ledger.Note(t.Context(), e))
	state := func() run.ResourceState {
		all, err := w.deps.ledger.Of(t.Context(), "run")
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0].State
	}
	f.set("wf/build", completed)
	f.set("wf/plain", completed)
	w.stages.sweep(t.Context())
	require.NoDirExists(t, plain.Root, "a stage that had no containers does not wait for the engine")
	require.DirExists(t, dirs.Root)
	require.Equal(t, run.ResourceLeaked, state())

	serveNothing(t, socket)
	w.stages.sweep(t.Context())
	require.NoDirExists(t, dirs.Root)
	require.Equal(t, run.ResourceReleased, state())
}

// serveNothing is a container engine that has nothing.
func serveNothing(t *testing.T, socket string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("Api-Version", "1.47")
		if !strings.HasSuffix(r.URL.Path, "/_ping") {
			_, _ = rw.Write([]byte("[]")) // who asked may be gone
		}
	})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
}
