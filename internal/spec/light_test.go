package spec_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/expr"
	"belay.run/internal/spec"
)

func light(t *testing.T, step string) (spec.Step, *spec.Report) {
	t.Helper()
	file, report := spec.Parse("", []byte("name: p\ninputs: {n: {type: int, default: 3}}\nstages:\n  - name: a\n    timeout: 8s\n    steps:\n      - "+step+"\n"))
	if file == nil {
		return spec.Step{}, report
	}
	return file.Draft().Stages[0].Steps[0], report
}

// TestUnknownTypes holds that each type of light task can be used, and that a
// wrong one is named with the nearest.
func TestUnknownTypes(t *testing.T) {
	t.Parallel()
	require.Contains(t, spec.Types(), "noop")
	for _, name := range spec.Types() {
		_, report := light(t, "{name: s, uses: "+name+"}")
		for _, p := range report.Errors {
			require.Regexp(t, "^uses: "+name+" needs the parameter|^uses: "+name+": ", p.Message)
		}
	}
	_, report := light(t, "{name: s, uses: htp, with: {url: 5}}")
	require.Len(t, report.Errors, 1)
	require.Equal(t, "did you mean http?", report.Errors[0].Hint)
	require.Contains(t, report.Errors[0].Message, `found "htp"`)
}

func TestLightTimeouts(t *testing.T) {
	t.Parallel()
	for step, want := range map[string]time.Duration{
		`{name: s, uses: noop}`:                                                                 8 * time.Second,
		`{name: s, uses: noop, with: {sleep: 1s}}`:                                              5 * time.Second,
		`{name: s, uses: http, with: {url: "https://x.example"}}`:                               5 * time.Second,
		`{name: s, uses: http, with: {url: "https://x.example"}, timeout: 7s}`:                  7 * time.Second,
		`{name: s, uses: http, with: {url: "https://x.example"}, labels: {duration: 3s}}`:       6 * time.Second,
		`{name: s, uses: http, with: {url: "https://x.example"}, labels: {duration: 1m}}`:       8 * time.Second,
		`{name: s, uses: http, with: {url: "https://x.example"}, labels: {memory: 10MB, a: 5}}`: 5 * time.Second,
	} {
		st, report := light(t, step)
		require.Empty(t, report.Errors, step)
		require.Equal(t, want, st.Timeout, step)
	}
	file, report := spec.Parse("", []byte(`{name: p, stages: [{name: a, steps: [{name: s, uses: noop, with: {sleep: 1s}, labels: {duration: 50m}}]}]}`))
	require.Empty(t, report.Errors)
	require.Equal(t, time.Hour, file.Draft().Stages[0].Steps[0].Timeout, "no more than a task may take")
}

// TestParameters evaluates what a step is given as a workflow does: after its plan
// went through JSON.
func TestParameters(t *testing.T) {
	t.Parallel()
	st, report := light(t, `{name: s, uses: http, with: {url: "https://x.example/${{ inputs.n }}", status: [200, "${{ inputs.n }}99"], `+
		`headers: {A: "${{ inputs.n }}", B: "$${{ x }}"}, redirects: 2}}`)
	require.Empty(t, report.Errors)
	text, err := json.Marshal(st)
	require.NoError(t, err)
	var plan spec.Step
	require.NoError(t, json.Unmarshal(text, &plan))

	with, err := plan.Parameters(expr.Scope{"inputs": map[string]any{"n": 3}})
	require.NoError(t, err)
	text, err = json.Marshal(with)
	require.NoError(t, err)
	require.JSONEq(t, `{"url": "https://x.example/3", "status": ["200", "399"], "headers": {"A": "3", "B": "${{ x }}"}, "redirects": 2}`, string(text))

	_, err = plan.Parameters(expr.Scope{"inputs": map[string]any{}})
	require.ErrorContains(t, err, "with.headers.A: `inputs.n` has no value")
	with, err = new(spec.Step).Parameters(nil)
	require.NoError(t, err)
	require.Nil(t, with)
}
