package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/dev/ports"
	"belay.run/internal/batch"
	"belay.run/internal/config"
	"belay.run/internal/executor"
	"belay.run/internal/run"
	"belay.run/internal/task"
	"belay.run/worker/host"
)

const (
	tasksPath   = "/api/v1/tasks"
	batchesPath = "/api/v1/batches"
	statusPath  = "/api/v1/executor/status"
	docPath     = "/api/v1/openapi.yaml"
	linesKind   = "application/x-ndjson"
	apiToken    = "token-of-the-shop-0123"
)

// TestOpenAPI holds what workers answer to the document: every path, every status
// that it lists, headers and bodies; and all of it is seen.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	c := newContract(t)
	limits := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(limits, []byte("concurrency: 1\nqueue: 1\ntarget: {in_flight: -1, queue: -1}\n"), 0o600))
	w := env.StartWorker(t, t.TempDir(), "--labels", "api", "--light-limits", limits)
	serving(t, c, w.URL())
	refusing(t, c, w.URL())
	full(t, c, w.URL())
	asking(t, c, workerThatWaits(t))
	require.Equal(t, []string{
		// Faults in the worker, which are not there to be seen.
		"cancelBatch 500", "executorStatus 500", "readBatch 500", "readResults 500", "runTask 500", "startBatch 500",
	}, c.unseen())
}

// serving is what a worker does that is asked rightly.
func serving(t *testing.T, c *contract, base string) {
	t.Helper()
	once := uuid.NewString()
	keyed := exchange{method: "POST", path: tasksPath, body: `{"type":"noop","key":"` + once + `"}`, status: 200}
	for _, x := range []exchange{
		{method: "GET", path: "/healthz", status: 200},
		{method: "GET", path: "/readyz", status: 200},
		{method: "GET", path: "/metrics", status: 200},
		{method: "GET", path: docPath, status: 200},
		{method: "POST", path: tasksPath, body: `{"type":"noop"}`, status: 200, headers: []string{"Idempotency-Key", "k-1"}},
		{method: "POST", path: tasksPath, body: `{"type":"noop","with":{"sleep":"1m"},"timeout":"10ms","priority":3,"tenant":"shop"}`, status: 200},
		{method: "POST", path: tasksPath, body: `{"type":"http","with":{"url":"` + base + `/healthz"}}`, status: 200},
		keyed,
	} {
		c.ask(t, base, x)
	}
	var s executor.Status
	require.NoError(t, json.Unmarshal([]byte(c.ask(t, base, exchange{method: "GET", path: statusPath, status: 200})), &s))
	require.Equal(t, "running", s.Status)
	require.Equal(t, "coroutine", s.Executor)
	var r task.Result
	require.NoError(t, json.Unmarshal([]byte(c.ask(t, base, keyed)), &r))
	require.Equal(t, task.Duplicate, r.Status)

	lines := strings.Repeat(`{"type":"noop"}`+"\n", 300) + `{"type":"noop","with":{"sleep":"1m"},"timeout":"10ms"}`
	start := exchange{method: "POST", path: batchesPath + "?rate=100000&chunk=100", body: lines, kind: linesKind, headers: []string{"Idempotency-Key", once}, status: 202}
	var d batch.Document
	require.NoError(t, json.Unmarshal([]byte(c.ask(t, base, start)), &d))
	start.status = 200
	c.ask(t, base, start)
	path := batchesPath + "/" + url.PathEscape(d.ID)
	slow := exchange{
		method: "POST", path: batchesPath, body: `{"type":"noop","with":{"sleep":"10m"},"timeout":"10m"}`, kind: linesKind,
		headers: []string{"Idempotency-Key", once + "-slow"}, status: 202,
	}
	var running batch.Document
	require.NoError(t, json.Unmarshal([]byte(c.ask(t, base, slow)), &running))
	slowPath := batchesPath + "/" + url.PathEscape(running.ID)
	c.ask(t, base, exchange{method: "GET", path: slowPath + "/results", status: 409})
	c.ask(t, base, exchange{method: "POST", path: slowPath + "/cancel?reason=enough", status: 202})
	require.Eventually(t, func() bool {
		text := c.ask(t, base, exchange{method: "GET", path: slowPath, status: 200})
		return json.Unmarshal([]byte(text), &running) == nil && running.Status.Terminal()
	}, e2e.Patience, 100*time.Millisecond)
	require.Equal(t, run.Cancelled, running.Status)
	c.ask(t, base, exchange{method: "POST", path: slowPath + "/cancel", status: 200})
	require.Eventually(t, func() bool {
		text := c.ask(t, base, exchange{method: "GET", path: path, status: 200})
		return json.Unmarshal([]byte(text), &d) == nil && d.Status.Terminal()
	}, e2e.Patience, 100*time.Millisecond)
	require.Equal(t, run.Failed, d.Status)
	require.Equal(t, batch.Counts{Succeeded: 300, Failed: 1}, d.Counts)
	require.Equal(t, 301, strings.Count(c.ask(t, base, exchange{method: "GET", path: path + "/results", status: 200}), "\n"))
}

// refusing is what a worker does that is asked wrongly.
func refusing(t *testing.T, c *contract, base string) {
	t.Helper()
	for _, x := range []exchange{
		{method: "POST", path: tasksPath, body: `{"type":"noop","kind":1}`, status: 400, wrong: true},
		{method: "POST", path: tasksPath, body: `{"type":"nop"}`, status: 400},
		{method: "POST", path: tasksPath, body: `{"type":"noop","key":"` + strings.Repeat("k", batch.MaxLine) + `"}`, status: 413, wrong: true},
		{method: "POST", path: tasksPath, body: `{"type":"noop"}`, kind: "text/plain", status: 415, wrong: true},
		{method: "POST", path: batchesPath, body: "{\n" + `{"type":"nop"}`, kind: linesKind, status: 400},
		{method: "POST", path: batchesPath + "?chunk=0", body: `{"type":"noop"}`, kind: linesKind, status: 400, wrong: true},
		{method: "POST", path: batchesPath, body: `{"type":"noop"}`, status: 415, wrong: true},
		{method: "GET", path: batchesPath + "/none", status: 404},
		{method: "GET", path: batchesPath + "/none/results", status: 404},
		{method: "POST", path: batchesPath + "/none/cancel", status: 404},
		{method: "POST", path: batchesPath + "/none/cancel?why=x", status: 400},
		// This worker grants no secrets, unlike that of the stack.
		{method: "POST", path: tasksPath, body: `{"type":"http","with":{"url":"http://a.example","secret":"TOKEN"}}`, status: 403},
		{method: "POST", path: batchesPath, body: `{"type":"http","with":{"url":"http://a.example","secret":"TOKEN"}}`, kind: linesKind, status: 400},
	} {
		c.ask(t, base, x)
	}
	for _, path := range []string{
		tasksPath, batchesPath, batchesPath + "/x", batchesPath + "/x/results", batchesPath + "/x/cancel", statusPath, docPath,
	} {
		c.ask(t, base, exchange{method: "DELETE", path: path, status: 405})
	}
	elsewhere := []string{"Host", "evil.example"}
	c.ask(t, base, exchange{method: "POST", path: tasksPath, body: `{"type":"noop"}`, headers: elsewhere, status: 403})
	c.ask(t, base, exchange{method: "POST", path: batchesPath, body: `{"type":"noop"}`, kind: linesKind, headers: elsewhere, status: 403})
	for _, path := range []string{batchesPath + "/x", batchesPath + "/x/results", statusPath, docPath} {
		c.ask(t, base, exchange{method: "GET", path: path, headers: elsewhere, status: 403})
	}
	c.ask(t, base, exchange{method: "POST", path: batchesPath + "/x/cancel", headers: elsewhere, status: 403})

	// Bodies that stand still, one whose length is too much, and too many tasks a chunk.
	head := func(path, kind, length string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + kind + "\r\nContent-Length: " + length + "\r\n\r\n{"
	}
	slow := exchange{method: "POST", path: tasksPath, body: `{"type":"noop"}`, status: 408}
	slowBatch := exchange{method: "POST", path: batchesPath, body: `{"type":"noop"}`, kind: linesKind, status: 408}
	large := exchange{method: "POST", path: batchesPath, body: `{"type":"noop"}`, kind: linesKind, status: 413}
	one, two := dial(t, base, head(tasksPath, "application/json", "100")), dial(t, base, head(batchesPath, linesKind, "100"))
	three := dial(t, base, head(batchesPath, linesKind, "3000000000"))
	c.hear(t, base, slow, one)
	c.hear(t, base, slowBatch, two)
	c.hear(t, base, large, three)
}

// full is what a worker does that has no room left.
func full(t *testing.T, c *contract, base string) {
	t.Helper()
	const body = `{"type":"noop","with":{"sleep":"10m"},"timeout":"10m"}`
	text := "POST " + tasksPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 54\r\n\r\n" + body
	require.Len(t, body, 54)
	for _, taken := range []func(s *executor.Status) bool{
		func(s *executor.Status) bool { return s.Running == 1 },
		func(s *executor.Status) bool { return s.Waiting == 1 },
	} {
		dial(t, base, text)
		require.Eventually(t, func() bool {
			var s executor.Status
			answer := c.ask(t, base, exchange{method: "GET", path: statusPath, status: 200})
			return json.Unmarshal([]byte(answer), &s) == nil && taken(&s)
		}, e2e.Patience, 20*time.Millisecond)
	}
	c.ask(t, base, exchange{method: "POST", path: tasksPath, body: `{"type":"noop"}`, status: 429})

	const head = "POST " + batchesPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + linesKind + "\r\nContent-Length: 1000000\r\n\r\n"
	for range 4 {
		conn := dial(t, base, head)
		go func() { // a client that is slow, not silent
			for {
				if _, err := conn.Write([]byte(" \n")); err != nil {
					return
				}
				time.Sleep(time.Second) // it is what it does
			}
		}()
	}
	require.Eventually(t, func() bool {
		req := c.request(t, base, exchange{method: "POST", path: batchesPath, body: "{", kind: linesKind})
		resp, err := http.DefaultClient.Do(req)
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusTooManyRequests
	}, e2e.Patience, 20*time.Millisecond)
	c.ask(t, base, exchange{method: "POST", path: batchesPath, body: `{"type":"noop"}`, kind: linesKind, status: 429})
}

// workerThatWaits is a worker that asks for a token and has nobody to hand
// requests on to.
func workerThatWaits(t *testing.T) string {
	t.Helper()
	secrets := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(secrets, "SHOP"), []byte(apiToken), 0o600))
	port, err := ports.Take(t.Context(), "a worker", "", "127.0.0.1", 0)
	require.NoError(t, err)
	defer port.Release()
	address := ports.Join("127.0.0.1", port.Number)
	settings, err := config.Load([]string{
		"--state-dir", t.TempDir(), "--http-address", address, "--secrets", "dir:" + secrets, "--http-tokens", "shop=SHOP",
	}, func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	w, err := host.New(host.Config{Settings: settings})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Stop(context.WithoutCancel(t.Context()))) })
	return "http://" + address
}

// asking is what a worker does that asks for a token and is starting.
func asking(t *testing.T, c *contract, base string) {
	t.Helper()
	bearer := []string{"Authorization", "Bearer " + apiToken}
	all := []exchange{
		{method: "POST", path: tasksPath, body: `{"type":"noop"}`, status: 503},
		{method: "POST", path: batchesPath, body: `{"type":"noop"}`, kind: linesKind, status: 503},
		{method: "GET", path: batchesPath + "/x", status: 503},
		{method: "GET", path: batchesPath + "/x/results", status: 503},
		{method: "POST", path: batchesPath + "/x/cancel", status: 503},
		{method: "GET", path: statusPath, status: 503},
		{method: "GET", path: docPath, status: 200},
		{method: "GET", path: "/metrics", status: 200},
	}
	for _, x := range all {
		granted := x
		granted.headers = bearer
		c.ask(t, base, granted)
		x.status = 401
		c.ask(t, base, x)
	}
	// Whoever guesses is not even told any more that he is wrong.
	guess := []string{"Authorization", "Bearer is-it-this-one-perhaps"}
	for range 10 {
		c.ask(t, base, exchange{method: "GET", path: statusPath, headers: guess, status: 401})
	}
	for _, x := range all {
		x.headers, x.status = guess, 429
		c.ask(t, base, x)
	}
	c.ask(t, base, exchange{method: "GET", path: "/metrics", headers: []string{"Host", "evil.example"}, status: 403})
	c.ask(t, base, exchange{method: "GET", path: "/readyz", status: 503})
	c.ask(t, base, exchange{method: "GET", path: "/healthz", status: 200})
}
