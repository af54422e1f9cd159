package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
)

// target answers light steps as their path says, and remembers what they sent.
type target struct {
	*httptest.Server
	asked atomic.Int64 // by those that are never answered
	flaky atomic.Int64
	mu    sync.Mutex
	heads []http.Header // of POSTs
}

func newTarget(t *testing.T) *target {
	t.Helper()
	x := &target{}
	over := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/gone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	mux.HandleFunc("/flaky", func(w http.ResponseWriter, _ *http.Request) {
		if x.flaky.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) {
		x.asked.Add(1)
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
	mux.HandleFunc("POST /hook", func(w http.ResponseWriter, r *http.Request) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.heads = append(x.heads, r.Header); len(x.heads) == 1 {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	x.Server = httptest.NewServer(mux)
	t.Cleanup(func() { close(over); x.Close() })
	return x
}

func (x *target) posts() []http.Header {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.heads
}

// TestLightSteps runs steps against targets that are well, flapping, unwilling,
// dead and silent, on no host.
func TestLightSteps(t *testing.T) {
	t.Parallel()
	e, x := shared.Get(t), newTarget(t)
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	doc := e.Run(t, `
name: light
inputs: {url: {type: string}, dead: {type: string}}
stages:
  - name: good
    steps:
      - name: ok
        uses: http
        with: {url: "${{ inputs.url }}/ok", headers: {X-Run: "${{ run.id }}"}}
        outputs: [status]
      - {name: again, uses: http, when: 'steps.ok.outputs.status == "200"', with: {url: "${{ inputs.url }}/flaky"}, retry: {max_attempts: 5, initial_interval: 1ms}}
      - {name: hook, uses: http, with: {url: "${{ inputs.url }}/hook", body: '{}'}, retry: {max_attempts: 2, initial_interval: 1ms}}
  - name: bad
    needs: [good]
    steps:
      - name: all
        parallel:
          - {name: gone, uses: http, with: {url: "${{ inputs.url }}/gone"}}
          - {name: dead, uses: http, with: {url: "${{ inputs.dead }}"}}
          - {name: silent, uses: http, with: {url: "${{ inputs.url }}/silent"}, timeout: 200ms}
          - {name: meta, uses: http, with: {url: "http://169.254.169.254/latest"}, retry: {max_attempts: 3, initial_interval: 1ms}}
`, e2e.Inputs(map[string]string{"url": x.URL, "dead": dead.URL})).Wait()
	nodes := e2e.Nodes(doc)
	require.Equal(t, map[string]run.Status{
		"": run.Failed, "good": run.Succeeded, "good/ok": run.Succeeded, "good/again": run.Succeeded, "good/hook": run.Succeeded,
		"bad": run.Failed, "bad/gone": run.Failed, "bad/dead": run.Failed, "bad/silent": run.TimedOut, "bad/meta": run.Failed,
	}, states(nodes))
	require.Equal(t, map[string]string{"status": "200"}, nodes["good/ok"].Outputs)
	require.Equal(t, 3, nodes["good/again"].Attempts)
	for node, want := range map[string]run.Trigger{
		"bad/gone": run.TriggerExitCode, "bad/dead": run.TriggerDependencyUnavailable,
		"bad/silent": run.TriggerStepTimeout, "bad/meta": run.TriggerInvalid,
	} {
		require.Equal(t, want, nodes[node].Cause.Trigger, "%s: %s", node, nodes[node].Cause)
	}
	require.Equal(t, 1, nodes["bad/meta"].Attempts, "what is wrong is not tried again")
	for _, st := range doc.Stages {
		require.Empty(t, st.Host, "a stage of light steps takes no host")
	}
	posts := x.posts()
	require.Len(t, posts, 2)
	require.NotEmpty(t, posts[0].Get("Idempotency-Key"))
	require.Equal(t, posts[0].Get("Idempotency-Key"), posts[1].Get("Idempotency-Key"), "the same for all attempts")
	trace := func(h http.Header) string { return strings.Join(strings.Split(h.Get("Traceparent"), "-")[:2], "-") }
	require.Equal(t, trace(posts[0]), trace(posts[1]), "one trace a run")
	require.NotEqual(t, posts[0].Get("Traceparent"), posts[1].Get("Traceparent"))
}

func states(nodes map[string]e2e.Node) map[string]run.Status {
	out := map[string]run.Status{}
	for name, n := range nodes {
		out[name] = n.Status
	}
	return out
}

// TestLightStepIsCancelled holds that a step which waits for an answer lets go of
// it, wherever it runs.
func TestLightStepIsCancelled(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	for name, labels := range map[string]string{"light": "", "host": ", labels: {duration: 1m}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTarget(t)
			r := e.Run(t, fmt.Sprintf(`
name: waits
stages:
  - name: s
    steps: [{name: silent, uses: http, with: {url: "%s/silent"}, timeout: 5m%s}]
    finally: [{name: tell, uses: http, with: {url: "%s/ok"}}]
`, x.URL, labels, x.URL))
			r.WaitFor("the target is asked", func(*run.Document) bool { return x.asked.Load() == 1 })
			r.Cancel("enough")
			doc := r.Wait()
			nodes := e2e.Nodes(doc)
			require.Equal(t, map[string]run.Status{"": run.Cancelled, "s": run.Cancelled, "s/silent": run.Cancelled, "s/tell": run.Succeeded}, states(nodes))
			require.Equal(t, run.TriggerUser, nodes["s"].Cause.Trigger)
			require.Equal(t, name == "host", doc.Stages[0].Host != "", "what is long takes a host")
		})
	}
}
