package host

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/config"
	"belay.run/internal/task"
)

// token puts a token into a folder of secrets and returns the flags that have a
// worker ask for it.
func token(t *testing.T, text string) []string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "SHOP"), []byte(text+"\n"), 0o600))
	return []string{"--secrets", "dir:" + dir, "--http-tokens", "shop=SHOP"}
}

// ask asks a worker by HTTP, with a token where there is one.
func ask(t *testing.T, method, url, body, bearer string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := c.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

// elsewhere is an address that other machines reach, on a free port.
func elsewhere(t *testing.T) (address, url string) {
	t.Helper()
	_, port, _ := strings.Cut(freeAddress(t), ":")
	return "0.0.0.0:" + port, "http://127.0.0.1:" + port
}

func TestAPI(t *testing.T) {
	t.Parallel()

	t.Run("NeedsTokensOffThisMachine", func(t *testing.T) {
		t.Parallel()
		address, _ := elsewhere(t)
		s := settingsFor(t, "--http-address", address)
		_, err := New(Config{Settings: s})
		var setting *config.SettingError
		require.ErrorAs(t, err, &setting)
		require.ErrorContains(t, err, "BELAY_HTTP_TOKENS")
		require.ErrorContains(t, err, "http_api: off")
		s.HTTPAddress = config.HTTPOff
		newWorker(t, Config{Settings: s}) // it has let go of the rest
	})

	t.Run("NeedsTokensThatAreThere", func(t *testing.T) {
		t.Parallel()
		_, err := New(Config{Settings: settingsFor(t, "--http-address", freeAddress(t), "--http-tokens", "shop=NONE", "--secrets", "dir:"+t.TempDir())})
		require.ErrorContains(t, err, "NONE")
	})

	t.Run("AsksForTheToken", func(t *testing.T) {
		t.Parallel()
		const secret = "0123456789abcdef"
		address, url := elsewhere(t)
		f := serveTemporal(t, "")
		startWorker(t, f, append(token(t, secret), "--http-address", address)...)
		for _, path := range []string{"/api/v1/executor/status", "/metrics"} {
			status, _ := ask(t, http.MethodGet, url+path, "", "")
			require.Equal(t, http.StatusUnauthorized, status, path)
			status, _ = ask(t, http.MethodGet, url+path, "", secret+"0")
			require.Equal(t, http.StatusUnauthorized, status, path)
			status, _ = ask(t, http.MethodGet, url+path, "", secret)
			require.Equal(t, http.StatusOK, status, path)
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			status, _ := ask(t, http.MethodGet, url+path, "", "")
			require.Equal(t, http.StatusOK, status, path)
		}
	})

	t.Run("ServesItsMetricsAndThoseOfTemporalsSDK", func(t *testing.T) {
		t.Parallel()
		f, address := serveTemporal(t, ""), freeAddress(t)
		w := newWorker(t, Config{Settings: settingsFor(t, "--http-address", address)})
		w.cfg.environ = f.environ()
		require.NoError(t, w.Start(t.Context()))
		require.Eventually(t, func() bool {
			status, text := ask(t, http.MethodGet, "http://"+address+"/metrics", "", "")
			require.Equal(t, http.StatusOK, status)
			return strings.Contains(text, "\nbelay_ready 1\n") && strings.Contains(text, "\nbelay_disk_free_bytes{of=\"state\"}") &&
				strings.Contains(text, "\nbelay_service_up{service=\"temporal\"} 1\n") &&
				strings.Contains(text, "\ntemporal_request_total{") && strings.Contains(text, `task_queue="belay-host"`)
		}, patience, 50*time.Millisecond)
	})

	t.Run("IsLeftOut", func(t *testing.T) {
		t.Parallel()
		address, url := elsewhere(t)
		newWorker(t, Config{Settings: settingsFor(t, "--http-address", address, "--http-api", "off")})
		status, _ := ask(t, http.MethodGet, url+"/api/v1/executor/status", "", "")
		require.Equal(t, http.StatusNotFound, status)
		status, _ = ask(t, http.MethodGet, url+"/metrics", "", "")
		require.Equal(t, http.StatusOK, status)
	})

	t.Run("StartsWithTheWorkerAndRunsTasks", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		address := freeAddress(t)
		w := newWorker(t, Config{Settings: settingsFor(t, "--http-address", address), Temporal: f.dial(t)})
		status, text := ask(t, http.MethodPost, "http://"+address+"/api/v1/tasks", `{"type":"noop"}`, "")
		require.Equal(t, http.StatusServiceUnavailable, status, text)
		require.NoError(t, w.Start(t.Context()))
		status, text = ask(t, http.MethodPost, "http://"+address+"/api/v1/tasks", `{"type":"noop"}`, "")
		require.Equal(t, http.StatusOK, status, text)
		var r task.Result
		require.NoError(t, json.Unmarshal([]byte(text), &r))
		require.Equal(t, task.Succeeded, r.Status)
		status, text = ask(t, http.MethodGet, "http://"+address+"/metrics", "", "")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, text, `belay_light_tasks_total{outcome="succeeded",type="noop"} 1`)
	})

	t.Run("EndsWhatItHasTakenInTheDrain", func(t *testing.T) {
		t.Parallel()
		f := serveTemporal(t, "")
		address := freeAddress(t)
		w := startWorker(t, f, "--http-address", address)
		type answer struct {
			status int
			err    error
		}
		answered := make(chan answer, 1)
		go func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/api/v1/tasks",
				strings.NewReader(`{"type":"noop","with":{"sleep":"1s"}}`))
			if err != nil {
				answered <- answer{err: err}
				return
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
			if err != nil {
				answered <- answer{err: err}
				return
			}
			answered <- answer{resp.StatusCode, resp.Body.Close()}
		}()
		eventually(t, func() bool { s := w.deps.executor.Status(); return s.Running+int(s.Done) == 1 }, "the task is taken")
		done := drainOf(t.Context(), w)
		eventually(t, func() bool { return w.Health().Status == StatusDraining }, "it drains")
		require.NoError(t, <-done)
		require.Zero(t, w.deps.executor.Status().Running, "it waited for the task")
		a := <-answered
		require.NoError(t, a.err)
		require.Equal(t, http.StatusOK, a.status)
	})
}
