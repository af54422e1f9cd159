package e2e_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
	"belay.run/internal/telemetry"
	"belay.run/internal/testkit/collector"
	"belay.run/internal/tracing"
)

// Of whoever runs the first command.
const (
	outerTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	outerSpan   = "00f067aa0ba902b7"
	outerParent = "00-" + outerTrace + "-" + outerSpan + "-01"
)

// inert are things that must not be in any span.
const (
	secretInput = "an-input-that-is-nobodys-business"
	secretEnv   = "a-variable-that-is-nobodys-business"
	secretToken = "s3cr3t-token" // in testdata/secrets
)

const tracedFile = `
version: 1
name: traced
inputs: {note: {type: string, default: ""}, url: {type: string, default: ""}, wait: {type: bool, default: false}}
dedup: {key: "${{ inputs.url }}"}
secrets: [TOKEN]
stages:
  - name: build
    steps:
      - {name: compile, env: {HIDDEN: ` + secretEnv + `}, outputs: [parent], run: 'echo "parent=$TRACEPARENT" >> "$BELAY_OUTPUT"'}
      - {name: leak, secrets: [TOKEN], on_failure: ignore, run: 'echo "$TOKEN"; echo "$TOKEN" >&2; exit 3'}
      - {name: ask, uses: http, with: {url: "${{ inputs.url }}/a/path?with=a-query"}}
      - {name: long, when: inputs.wait, run: sleep 600}
`

// TestTraceOfARun holds that all that is done for a run is one trace, from the
// command to what a step asks of others, and that a duplicate and a run that is
// cancelled are traces too.
func TestTraceOfARun(t *testing.T) {
	t.Parallel()
	c := collector.Start(t)
	traces := c.Tracing(t)
	t.Cleanup(func() { traces.Close(time.Minute) })
	said := &seen{there: make(chan struct{})}
	log, err := telemetry.NewLogger(said, "debug", telemetry.FormatJSON)
	require.NoError(t, err)
	env := e2e.Start(t, e2e.Options{Tracing: traces, Log: log, Secrets: absolute("testdata/secrets")})
	env.Getenv = func(name string) string { return map[string]string{tracing.EnvParent: outerParent}[name] }
	var mu sync.Mutex
	var heard []string
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, r.Header.Get("Traceparent"))
	}))
	t.Cleanup(target.Close)
	file := write(t, tracedFile)

	first, res := env.RunFile(t, file, "-i", "url="+target.URL, "-i", "note="+secretInput)
	require.Zero(t, res.Code, res.Stderr)
	env.Getenv = func(string) string { return "" }
	again, res := env.RunFile(t, file, "-i", "url="+target.URL, "-i", "note="+secretInput)
	require.Zero(t, res.Code, res.Stderr)
	require.Equal(t, first.ID, again.DuplicateOf)
	bare := env.Run(t, tracedFile, e2e.Inputs(map[string]string{"url": target.URL + "/bare", "wait": "true"}))
	bare.WaitNode("build/long", run.Running)
	bare.Cancel("enough")
	require.Equal(t, run.Cancelled, bare.Wait().Status)
	traces.Close(time.Minute)

	byTrace := map[string][]collector.Span{}
	for _, s := range c.Spans() {
		byTrace[s.Trace] = append(byTrace[s.Trace], s)
	}
	require.Len(t, byTrace, 3, "one for each command or run")

	spans := named(t, byTrace[outerTrace])
	chain := []string{"belay run", "run traced", "stage build", "step build/ask", "task http", "GET"}
	parent := outerSpan
	for _, name := range chain {
		require.Equal(t, parent, spans[name].Parent, name)
		require.False(t, spans[name].Failed, name)
		parent = spans[name].ID
	}
	require.Equal(t, []string{"00-" + outerTrace + "-" + spans["GET"].ID + "-01"}, heard[:1])
	require.Equal(t, "00-"+outerTrace+"-"+spans["step build/compile"].ID+"-01", e2e.Nodes(first)["build/compile"].Outputs["parent"])
	require.Equal(t, spans["stage build"].ID, spans["step build/compile"].Parent)
	require.Equal(t, spans["run traced"].ID, spans["Plan"].Parent)
	for _, name := range []string{"stage build", "step build/ask", "step build/compile", "task http"} {
		a := spans[name].Attributes
		require.Equal(t, []string{"default", "traced", first.RunID}, []string{a[tracing.AttrTenant], a[tracing.AttrPipeline], a[tracing.AttrRun]}, name)
		require.Equal(t, "succeeded", a[tracing.AttrStatus], name)
		require.Contains(t, a[tracing.AttrNode], "build", name)
	}
	require.Equal(t, "granted", spans["run traced"].Attributes[tracing.AttrDedup])
	require.Equal(t, first.ID, spans["belay run"].Attributes["belay.run_id"])
	require.Equal(t, "200", spans["GET"].Attributes["http.response.status_code"])
	delete(byTrace, outerTrace)

	for _, of := range byTrace {
		if spans := named(t, of); len(of) == 1 {
			require.Equal(t, "attached", spans["belay run"].Attributes[tracing.AttrDedup], "the second command runs nothing")
			require.Empty(t, spans["belay run"].Parent)
		} else {
			require.Equal(t, "cancelled", spans["run traced"].Attributes[tracing.AttrStatus])
			require.Empty(t, spans["run traced"].Parent, "it was started by nobody who traces")
			require.Equal(t, "cancelled", spans["step build/long"].Attributes[tracing.AttrStatus])
		}
	}
	for _, sent := range c.Raw() {
		for _, hidden := range []string{secretInput, secretEnv, secretToken, "a/path", "a-query"} {
			require.NotContains(t, string(sent), hidden)
		}
	}
	requireLines(t, said.String(), outerTrace, first.RunID)
}

// requireLines holds that the worker's lines say for whom they are, and nothing
// secret.
func requireLines(t *testing.T, text, trace, runKey string) {
	t.Helper()
	for _, hidden := range []string{secretInput, secretEnv, secretToken} {
		require.NotContains(t, text, hidden)
	}
	found := false
	for line := range strings.Lines(text) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m), line)
		if m["message"] == "light task ended" && m["trace_id"] == trace {
			found = true
			require.Equal(t, []any{"default", "traced", runKey, "build/ask"}, []any{m["tenant"], m["pipeline"], m["run"], m["node"]})
		}
	}
	require.True(t, found, "the line of the task of the first run")
}

// named are the spans of a trace by name. Those of a run, a stage and a step are
// there once: whoever replays a workflow records none.
func named(t *testing.T, spans []collector.Span) map[string]collector.Span {
	t.Helper()
	out := map[string]collector.Span{}
	for _, s := range spans {
		_, twice := out[s.Name]
		require.False(t, twice && strings.Contains(s.Name, " "), "%s is there twice", s.Name)
		require.False(t, s.Ended.Before(s.Started), s.Name)
		out[s.Name] = s
	}
	return out
}
