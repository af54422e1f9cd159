package host

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"belay.run/internal/config"
	"belay.run/internal/workspace"
)

// patience is far longer than anything here takes.
const patience = 30 * time.Second

func eventually(t *testing.T, cond func() bool, what string) {
	t.Helper()
	require.Eventually(t, cond, patience, 10*time.Millisecond, what)
}

// settingsFor reads the settings of a worker on a directory of the test's own.
func settingsFor(t *testing.T, args ...string) *config.Config {
	t.Helper()
	s, err := config.Load(append([]string{"--state-dir", t.TempDir(), "--http-address", "off"}, args...),
		func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	return s
}

// newWorker makes a worker that the test stops at its end.
func newWorker(t *testing.T, cfg Config) *Worker {
	t.Helper()
	cfg.Logger = zaptest.NewLogger(t)
	w, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stopNow(w)) })
	return w
}

func stopNow(w *Worker) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	return w.Stop(ctx)
}

// startWorker starts a worker on the fake.
func startWorker(t *testing.T, f *fakeTemporal, args ...string) *Worker {
	t.Helper()
	w := newWorker(t, Config{Settings: settingsFor(t, args...), Temporal: f.dial(t)})
	require.NoError(t, w.Start(t.Context()))
	return w
}

// bind binds a stage whose workflow the fake knows to run.
func bind(t *testing.T, f *fakeTemporal, w *Worker, node string) workspace.Dirs {
	t.Helper()
	f.set("wf/"+node, stillOpen)
	dirs, err := w.host.Bind(t.Context(), workspace.Binding{RunKey: "run", Node: node, WorkflowID: "wf/" + node, RunID: "r", At: time.Now()})
	require.NoError(t, err)
	return dirs
}

// get asks the worker by HTTP.
func get(t *testing.T, address, path string) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	require.NoError(t, err)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	body, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, body
}

func readyz(t *testing.T, address string) (int, Health) {
	t.Helper()
	status, body := get(t, address, "/readyz")
	var h Health
	require.NoError(t, json.Unmarshal(body, &h))
	return status, h
}

// freeAddress is a port nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()

	t.Run("NoSettings", func(t *testing.T) {
		t.Parallel()
		_, err := New(Config{})
		require.ErrorContains(t, err, "settings")
	})

	t.Run("AStateDirectoryInUse", func(t *testing.T) {
		t.Parallel()
		s := settingsFor(t)
		newWorker(t, Config{Settings: s})
		_, err := New(Config{Settings: s})
		var locked *workspace.LockedError
		require.ErrorAs(t, err, &locked)
	})

	t.Run("AnAddressInUseAndLetsGoOfTheRest", func(t *testing.T) {
		t.Parallel()
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		s := settingsFor(t, "--http-address", l.Addr().String())
		_, err = New(Config{Settings: s})
		require.ErrorContains(t, err, "is in use")
		require.ErrorContains(t, err, "--http-address")
		s.HTTPAddress = config.HTTPOff
		newWorker(t, Config{Settings: s})
	})
}

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("TakesWorkFromItsQueues", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		address := freeAddress(t)
		w := startWorker(t, f, "--labels=gpu,linux", "--http-address", address)
		want := []string{w.Queue(), "belay-light", "belay-steps", "belay-steps-gpu", "belay-steps-linux", "belay-workflows"}
		eventually(t, func() bool {
			got := map[string]bool{}
			for _, q := range f.queues() {
				got[q] = true
			}
			for _, q := range want {
				if !got[q] {
					return false
				}
			}
			return true
		}, "every queue is polled")

		bind(t, f, w, "build")
		status, health := readyz(t, address)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, StatusReady, health.Status)
		require.Equal(t, w.ID(), health.Host)
		require.Equal(t, w.Queue(), health.Queue)
		require.Equal(t, 1, health.Stages)
		require.Empty(t, health.WaitingFor)
		status, body := get(t, address, "/healthz")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "ok\n", string(body))
		status, _ = get(t, address, "/elsewhere")
		require.Equal(t, http.StatusNotFound, status)
	})

	t.Run("OnlyTheLabelsOfTheHost", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		startWorker(t, f, "--labels=gpu", "--only-labels=true", "--http-address", freeAddress(t))
		eventually(t, func() bool { return slices.Contains(f.queues(), "belay-steps-gpu") }, "the label's queue is polled")
		require.NotContains(t, f.queues(), "belay-steps")
	})

	t.Run("WaitsForTemporalAndSaysSo", func(t *testing.T) {
		t.Parallel()
		address, temporal := freeAddress(t), freeAddress(t)
		w := newWorker(t, Config{Settings: settingsFor(t, "--http-address", address)})
		w.cfg.environ = []string{"TEMPORAL_ADDRESS=" + temporal, "TEMPORAL_CONFIG_FILE=/dev/null"}
		started := make(chan error, 1)
		go func() { started <- w.Start(t.Context()) }()
		eventually(t, func() bool { return len(w.Health().WaitingFor) > 0 }, "it says what it waits for")
		status, health := readyz(t, address)
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Equal(t, StatusStarting, health.Status)
		require.Equal(t, "Temporal", health.WaitingFor[0].Service)
		require.Equal(t, temporal, health.WaitingFor[0].Address)
		require.Contains(t, health.WaitingFor[0].Check, "TEMPORAL_ADDRESS")
		status, _ = get(t, address, "/healthz")
		require.Equal(t, http.StatusOK, status, "it lives while it waits")

		serveTemporal(t, temporal)
		select {
		case err := <-started:
			require.NoError(t, err)
		case <-time.After(patience):
			require.Fail(t, "it did not start")
		}
		status, health = readyz(t, address)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, []string{"Temporal"}, health.Ready)
		require.NoError(t, stopNow(w)) // before its Temporal
	})

	t.Run("WaitsForRedisAndSaysSo", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		address := freeAddress(t)
		w := newWorker(t, Config{Temporal: f.dial(t), Settings: settingsFor(t, "--redis-url", "redis://:hunter2@"+address+"/0?max_retries=-1")})
		started := make(chan error, 1)
		go func() { started <- w.Start(t.Context()) }()
		eventually(t, func() bool { return len(w.Health().WaitingFor) > 0 }, "it says what it waits for")
		waiting := w.Health().WaitingFor[0]
		require.Equal(t, "Redis", waiting.Service)
		require.Contains(t, waiting.Address, address)
		require.NotContains(t, waiting.Address+waiting.Error, "hunter2")

		server := miniredis.NewMiniRedis()
		server.RequireAuth("hunter2")
		require.NoError(t, server.StartAddr(address))
		t.Cleanup(server.Close)
		require.NoError(t, <-started)
		require.Equal(t, []string{"Redis"}, w.Health().Ready)
		require.NoError(t, stopNow(w)) // before its Redis
	})

	t.Run("EndsItsWaitWithItsContext", func(t *testing.T) {
		t.Parallel()
		w := newWorker(t, Config{Settings: settingsFor(t)})
		w.cfg.environ = []string{"TEMPORAL_ADDRESS=" + freeAddress(t), "TEMPORAL_CONFIG_FILE=/dev/null"}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		eventually(t, func() bool { return len(w.Health().WaitingFor) > 0 }, "it waits")
		cancel(errDrain)
		require.NoError(t, <-ended)
	})

	t.Run("AStoreThatIsNoneEndsIt", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		w := newWorker(t, Config{Temporal: f.dial(t), Settings: settingsFor(t, "--store", "s3://bucket")})
		require.ErrorContains(t, w.Start(t.Context()), "s3://bucket")
	})

	t.Run("RemovesWhatNoLiveRunOwns", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		s := settingsFor(t)
		before, err := workspace.Open(s.StateDir)
		require.NoError(t, err)
		f.set("wf/live", stillOpen)
		f.set("wf/closed", completed)
		for _, node := range []string{"live", "closed", "forgotten"} {
			_, err := before.Bind(t.Context(), workspace.Binding{RunKey: "run", Node: node, WorkflowID: "wf/" + node})
			require.NoError(t, err)
		}
		stray := filepath.Join(s.StateDir, "stages", "stray")
		require.NoError(t, os.Mkdir(stray, 0o700))
		require.NoError(t, before.Close())

		w := newWorker(t, Config{Temporal: f.dial(t), Settings: s})
		require.NoError(t, w.Start(t.Context()))
		eventually(t, func() bool {
			b, err := w.host.Bindings()
			return err == nil && len(b) == 1 && b[0].Node == "live"
		}, "the live one alone stays")
		eventually(t, func() bool { _, err := os.Stat(stray); return os.IsNotExist(err) }, "the stray is removed")
		require.DirExists(t, w.host.Dirs("run", "live").Workspace)
	})
}

func TestStop(t *testing.T) {
	t.Parallel()

	t.Run("IsSafeTwiceAndBeforeStart", func(t *testing.T) {
		t.Parallel()
		w := newWorker(t, Config{Settings: settingsFor(t)})
		require.NoError(t, stopNow(w))
		require.NoError(t, stopNow(w))
		require.Equal(t, StatusStopped, w.Health().Status)
	})

	t.Run("GivesBackTheStateDirectoryAndLeavesBindings", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		w := startWorker(t, f)
		bind(t, f, w, "build")
		require.NoError(t, stopNow(w))
		again, err := workspace.Open(w.host.Dir())
		require.NoError(t, err)
		defer func() { require.NoError(t, again.Close()) }()
		bindings, err := again.Bindings()
		require.NoError(t, err)
		require.Len(t, bindings, 1, "the stage goes on when the worker returns")
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	f := serveTemporal(t, "")
	w := newWorker(t, Config{
		Settings: settingsFor(t, "--http-address", address, "--redis-url", "redis://"+miniredis.RunT(t).Addr()),
		Temporal: f.dial(t),
	})
	status, body := get(t, address, "/metrics")
	require.Equal(t, http.StatusOK, status, "also while it starts")
	require.Contains(t, string(body), "belay_dedup_decisions_total")
	require.NoError(t, w.Start(t.Context()))
	_, body = get(t, address, "/metrics")
	require.Contains(t, string(body), "\nbelay_dedup_tier_up ")
}
