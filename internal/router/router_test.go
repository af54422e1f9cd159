package router

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/spec"
)

func TestRoute(t *testing.T) {
	t.Parallel()
	r, err := parse([]byte(`
rules:
  - {name: reports, uses: [http], steps: ["*/report-*"], to: host}
  - {name: slow, longer_than: 2s, larger_than: 1KiB, labels: {team: data}, to: host}
  - {name: calm, uses: [http], labels: {team: web}, to: light}
`))
	require.NoError(t, err)
	http := spec.Step{Name: "x", Uses: "http", With: map[string]any{"url": "https://x.example"}}
	with := func(name string, labels map[string]string) *spec.Step {
		st := http
		st.Name, st.Labels = name, labels
		return &st
	}
	for name, tc := range map[string]struct {
		step *spec.Step
		want spec.Route
	}{
		"nothing to do":          {&spec.Step{Name: "n", Uses: "noop"}, spec.Route{To: spec.ToControl, Rule: "noop"}},
		"a noop that sleeps":     {&spec.Step{Name: "n", Uses: "noop", With: map[string]any{"sleep": "1s"}}, spec.Route{To: spec.ToLight, Rule: "default"}},
		"no label":               {with("x", nil), spec.Route{To: spec.ToLight, Rule: "default"}},
		"by its path":            {with("report-a", nil), spec.Route{To: spec.ToHost, Rule: "reports"}},
		"all of a rule":          {with("x", map[string]string{"team": "data", "duration": "3s", "memory": "2KB"}), spec.Route{To: spec.ToHost, Rule: "slow"}},
		"not all of a rule":      {with("x", map[string]string{"team": "data", "duration": "3s"}), spec.Route{To: spec.ToLight, Rule: "default"}},
		"no more than the bound": {with("x", map[string]string{"duration": "5s", "memory": "1MiB"}), spec.Route{To: spec.ToLight, Rule: "default"}},
		"long":                   {with("x", map[string]string{"duration": "6s"}), spec.Route{To: spec.ToHost, Rule: "long"}},
		"large":                  {with("x", map[string]string{"memory": "2MiB"}), spec.Route{To: spec.ToHost, Rule: "large"}},
		"a rule before defaults": {with("x", map[string]string{"duration": "1m", "team": "web"}), spec.Route{To: spec.ToLight, Rule: "calm"}},
	} {
		require.Equal(t, &tc.want, r.Route("s", tc.step), name)
	}
}

// TestApply holds that a plan which others share is left as it is.
func TestApply(t *testing.T) {
	t.Parallel()
	file, report := spec.Parse("", []byte(`
name: p
stages:
  - name: s
    steps:
      - {name: a, uses: http, with: {url: "https://x.example"}}
      - {name: g, parallel: [{name: b, uses: http, with: {url: "https://x.example"}, labels: {duration: 1m}}]}
      - {name: n, uses: noop}
      - {name: r, run: "true"}
    finally: [{name: f, uses: http, with: {url: "https://x.example"}}]
finally: [{name: e, uses: http, with: {url: "https://x.example"}}]
`))
	require.Empty(t, report.Errors)
	plan := file.Draft()
	got := New(Rule{Name: "mine", Steps: []string{"finally/*"}, To: spec.ToHost}).Apply(plan)
	s := got.Stages[0]
	require.Equal(t, spec.ToLight, s.Steps[0].Route.To)
	require.Equal(t, spec.ToHost, s.Steps[1].Parallel[0].Route.To)
	require.Nil(t, s.Steps[2].Route, "what does nothing needs no word")
	require.Nil(t, s.Steps[3].Route)
	require.Equal(t, spec.ToLight, s.Finally[0].Route.To)
	require.Equal(t, "mine", got.Finally[0].Route.Rule)
	for _, st := range []spec.Step{plan.Stages[0].Steps[0], plan.Stages[0].Steps[1].Parallel[0], plan.Stages[0].Finally[0], plan.Finally[0]} {
		require.Nil(t, st.Route)
	}
}

func TestBadRules(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"rules: [{to: light}]":                              "rule 1 (): name: it has none",
		"rules: [{name: a, to: moon}]":                      `to: found "moon", expected light or host`,
		"rules: [{name: a, to: control}]":                   `to: found "control"`,
		"rules: [{name: a, to: host, uses: [htp]}]":         `uses: unknown type "htp", did you mean http?`,
		"rules: [{name: a, to: host, steps: ['[']}]":        `steps: "[" is no pattern`,
		"rules: [{name: a, to: host, longer_than: 5}]":      `longer_than: found "5"`,
		"rules: [{name: a, to: host, larger_than: lots}]":   `larger_than: found "lots"`,
		"rules: [{name: a, to: host}, {name: a, to: host}]": "another rule is called a",
		"rules: [{name: a, to: host, mor: 1}]":              "field mor not found",
		"rules: []\n---\nrules: []":                         "more than one document",
	} {
		_, err := parse([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
	r, err := parse(nil)
	require.NoError(t, err)
	require.True(t, (&Rule{LongerThan: time.Second}).fits("s", &spec.Step{Labels: map[string]string{"duration": "2s"}}))
	require.Len(t, r.rules, len(defaults()))
	_, err = Load(t.TempDir() + "/none")
	require.ErrorContains(t, err, "reading the rules of the router")
}
