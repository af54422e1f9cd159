package spec_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
	"belay.run/internal/spec"
)

func parse(t testing.TB, text string) *spec.File {
	t.Helper()
	file, report := spec.Parse("p.yaml", []byte(text))
	require.Empty(t, report.Errors)
	return file
}

// TestPlanDefaults holds the plan of the smallest file: all that it leaves out.
func TestPlanDefaults(t *testing.T) {
	t.Parallel()
	file := parse(t, `
name: p
stages:
  - name: a
    steps:
      - {name: s, run: echo hello}
`)
	plan, err := file.Plan(nil)
	require.NoError(t, err)
	abort := spec.OnFailure{Timeout: spec.Abort, Error: spec.Abort, Lost: spec.Abort, Default: spec.Abort}
	require.Equal(t, &spec.Plan{
		Name:   "p",
		Inputs: map[string]any{},
		Stages: []spec.Stage{{
			Name: "a",
			Steps: []spec.Step{{
				Name: "s", Run: []spec.Command{{Script: "echo hello"}}, Shell: "sh",
				Timeout: 6 * time.Hour, GracePeriod: 10 * time.Second, Retry: spec.Retry{MaxAttempts: 1},
				OnFailure: abort, OutputLimit: 1 << 30,
			}},
			Timeout: 6 * time.Hour, FinallyTimeout: 5 * time.Minute, OnFailure: abort, OnWorkerLost: spec.LostFail,
		}},
		Timeout: 6 * time.Hour, FinallyTimeout: 5 * time.Minute, ReleaseTimeout: 2 * time.Minute,
	}, plan)
}

// TestPlan holds what a file that says everything becomes.
func TestPlan(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/valid/02_everything.yaml")
	require.NoError(t, err)
	file := parse(t, string(text))
	require.Equal(t, []string{"REGISTRY_TOKEN", "OTHER"}, file.Secrets)
	require.Equal(t, spec.Input{
		Name: "env", Type: "string", Default: "staging", Enum: []any{"staging", "prod"},
	}, file.Inputs[2])
	plan, err := file.Plan(map[string]string{"env": "prod", "replicas": "5", "ratio": "2", "publish": "TRUE"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"service": "shop", "tag": "v1.4.2", "env": "prod", "replicas": 5, "ratio": 2.0, "publish": true,
	}, plan.Inputs)
	require.Equal(t, map[string]string{
		"SERVICE": "${{ inputs.service }}", "PORT": "8080", "DEBUG": "true", "LITERAL": "$${{ not an expression }}",
	}, plan.Env)
	require.Equal(t, 90*time.Second, plan.ReleaseTimeout)

	build := plan.Stages[0]
	require.Equal(t, &spec.Matrix{
		Legs: []run.Leg{
			{"os": "linux", "go": "1.20", "race": "true"},
			{"os": "linux", "go": "1.21"},
			{"os": "darwin", "go": "1.21"},
			{"os": "freebsd", "go": "1.21"},
		},
		MaxParallel: 2, FailFast: true,
	}, build.Matrix)
	require.Equal(t, spec.LostRerun, build.OnWorkerLost)
	require.Equal(t, spec.Continue, build.OnFailure.Timeout)
	require.Equal(t, 4*time.Minute, build.FinallyTimeout)
	compile := build.Steps[0]
	require.Equal(t, spec.Retry{
		MaxAttempts: 3, InitialInterval: time.Second, MaxInterval: 10 * time.Second, Backoff: 1.5, ExitCodes: []int{75, 1},
	}, compile.Retry)
	require.Equal(t, int64(64<<20), compile.OutputLimit)
	require.Equal(t, &spec.Limits{Memory: 2 << 30, PIDs: 200, CPUTime: 10 * time.Minute, Output: 64 << 20, Disk: 10 << 30}, compile.Limits)
	require.Equal(t, "bash", compile.Shell)
	checks := build.Steps[1]
	require.True(t, checks.FailFast)
	require.Equal(t, &spec.Condition{Expr: `steps.compile.status == "succeeded"`, ReadsStatus: true}, checks.When)
	require.Equal(t, []spec.Command{{Script: "go vet ./..."}, {Script: "staticcheck ./...", Timeout: 90 * time.Second}}, checks.Parallel[1].Run)
	require.Equal(t, 10*time.Minute, checks.Parallel[0].Timeout)
	require.Equal(t, spec.OnFailure{Timeout: spec.Ignore, Error: spec.Continue, Lost: spec.Rollback, Default: spec.Continue}, build.Steps[2].OnFailure)
	require.Equal(t, map[string]any{"sleep": "${{ inputs.tag }}"}, build.Steps[2].With)
	tell := build.Steps[3]
	require.Equal(t, map[string]any{
		"url": "https://hooks.example.com/${{ inputs.tag }}", "method": "POST", "redirects": "${{ 1 + 2 }}",
		"headers": map[string]any{"X-Tag": "${{ inputs.tag }}", "X-Count": "3"}, "status": []any{"200", "204"},
	}, tell.With)
	require.Equal(t, map[string]string{"duration": "30s", "memory": "10MB", "team": "shop"}, tell.Labels)
	require.Equal(t, 30*time.Second, tell.ExpectedDuration())
	require.Equal(t, int64(10_000_000), tell.ExpectedMemory())
	require.Equal(t, time.Minute, tell.Timeout, "twice what it is expected to take")
	require.Equal(t, 4*time.Minute, build.Finally[0].Timeout)
	require.True(t, plan.Stages[2].When.ReadsStatus)
	require.False(t, plan.Stages[3].When.ReadsStatus)
	require.Len(t, plan.Finally, 2)
}

// TestReadsStatus holds which conditions replace the rule that everything
// before must have gone well.
func TestReadsStatus(t *testing.T) {
	t.Parallel()
	for when, want := range map[string]bool{
		"true": false, "inputs.x == 'status'": false, "steps.a.outputs.status == 'x'": false,
		"steps.a.status == 'failed'": true, "steps.a.exit_code == 3": true, "pipeline.status != 'cancelled'": true,
		"inputs.x == 'x' && (inputs.x == 'y' || stage.status == 'failed')": true, `stages["z"].status == "succeeded"`: true,
		`any([steps.a.status], # == "failed")`: true, "inputs.exit_code == 1": false,
	} {
		file := parse(t, fmt.Sprintf(`
name: p
inputs: {x: {default: x}, exit_code: {type: int, default: 1}}
stages:
  - {name: z, steps: [{name: s, run: 'true'}]}
  - name: a
    needs: [z]
    steps:
      - {name: a, run: 'true', outputs: [status]}
      - {name: b, run: 'true', when: %q}
`, when))
		plan, err := file.Plan(nil)
		require.NoError(t, err)
		require.Equal(t, want, plan.Stages[1].Steps[1].When.ReadsStatus, when)
	}
}

func TestPlanSource(t *testing.T) {
	t.Parallel()
	text := `
name: p
inputs: {ref: {default: main}, host: {default: example.org}}
source: {git: "https://${{ inputs.host }}/x.git", ref: "${{ inputs.ref }}"}
stages:
  - {name: a, steps: [{name: s, run: 'true'}]}
`
	plan, err := parse(t, text).Plan(map[string]string{"ref": "v2"})
	require.NoError(t, err)
	require.Equal(t, &spec.Source{Git: "https://example.org/x.git", Ref: "v2"}, plan.Source)

	for _, ref := range []string{"--upload-pack=x", "", "a\nb"} {
		_, err = parse(t, text).Plan(map[string]string{"ref": ref})
		var invalid *spec.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.ErrorContains(t, err, "p.yaml: source.ref: ")
	}
}

func TestPlanInputErrors(t *testing.T) {
	t.Parallel()
	file := parse(t, `
name: p
inputs:
  tag: {}
  count: {type: int, required: true}
  ratio: {type: number, default: 1}
  on: {type: bool, default: false}
  env: {default: a, enum: [staging, prod, a]}
  note: {required: false}
stages:
  - {name: a, steps: [{name: s, run: 'true'}]}
`)
	_, err := file.Plan(map[string]string{"ratio": "much", "on": "yes", "env": "stagin", "cuont": "3", "zzz": "1"})
	require.EqualError(t, err, strings.TrimSpace(`
p.yaml: the input tag is missing: expected text (give it with -i tag=…)
p.yaml: the input count is missing: expected a whole number (give it with -i count=…)
p.yaml: the input ratio: expected a number, found "much"
p.yaml: the input on: expected true or false, found "yes"
p.yaml: the input env: expected staging, prod or a, found "stagin" (did you mean staging?)
p.yaml: unknown input "cuont" (did you mean count?)
p.yaml: unknown input "zzz" (it has tag, count, ratio, on, env and note)
`))
	_, err = file.Plan(map[string]string{"tag": "a\x00b", "count": "0x10"})
	require.EqualError(t, err, "p.yaml: the input tag: it holds the character NUL\n"+
		`p.yaml: the input count: expected a whole number, found "0x10"`)
	for _, beyond := range []string{"9007199254740992", "-9007199254740992", "99999999999999999999", "-99999999999999999999"} {
		_, err = file.Plan(map[string]string{"tag": "", "count": beyond})
		require.EqualError(t, err, `p.yaml: the input count: expected a whole number, found "`+beyond+
			`" (whole numbers go up to 9007199254740991: make the input a string)`)
	}
	_, err = file.Plan(map[string]string{"count": "1", "tag": strings.Repeat("x", 65<<10)})
	require.ErrorContains(t, err, "66560 bytes long, at most 65536 are allowed")

	plan, err := file.Plan(map[string]string{"tag": "", "count": "-3"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"tag": "", "count": -3, "ratio": 1.0, "on": false, "env": "a"}, plan.Inputs)
}

func TestPlanIsBounded(t *testing.T) {
	t.Parallel()
	file := parse(t, "name: p\nx-s: &script "+strings.Repeat("x", 30<<10)+"\nstages:\n  - name: a\n    steps:\n"+
		func() string {
			var b strings.Builder
			for i := range 60 {
				fmt.Fprintf(&b, "      - {name: s%d, run: *script}\n", i)
			}
			return b.String()
		}())
	_, err := file.Plan(nil)
	require.ErrorContains(t, err, "at most 1572864 are allowed")
}

// TestPlansAreApart holds that what one run does to its plan shows in no other.
func TestPlansAreApart(t *testing.T) {
	t.Parallel()
	file := parse(t, "name: p\nsource: {path: .}\nstages:\n  - {name: a, steps: [{name: s, run: 'true'}]}\n")
	one, err := file.Plan(nil)
	require.NoError(t, err)
	one.Source.Path, one.Inputs["x"] = "changed", 1
	two, err := file.Plan(nil)
	require.NoError(t, err)
	require.Equal(t, ".", two.Source.Path)
	require.Empty(t, two.Inputs)
}

func TestReport(t *testing.T) {
	t.Parallel()
	_, report := spec.Parse("p.yaml", []byte("name: p\nstages:\n\t- x\n"))
	text, err := json.Marshal(report)
	require.NoError(t, err)
	require.JSONEq(t, `{"errors": [{"line": 3, "column": 1, "hint": "indent with spaces",
		"message": "the file is not valid YAML: a tab in the indentation"}], "warnings": []}`, string(text))

	_, report = spec.Parse("p.yaml", []byte("name: p\nstages:\n  - name: a\n    steps: [{name: s, run: 'true', timeot: 5m}]\n"))
	var b strings.Builder
	var invalid *spec.InvalidError
	require.ErrorAs(t, report.Err(), &invalid)
	require.NoError(t, invalid.Render(&b, false))
	require.Equal(t, `p.yaml:4:36: error: unknown key "timeot" in a step
 4 |     steps: [{name: s, run: 'true', timeot: 5m}]
   |                                    ^
   = did you mean timeout?
`, b.String())
	b.Reset()
	require.NoError(t, invalid.Render(&b, true))
	require.Contains(t, b.String(), "\x1b[1;31merror:\x1b[0m")
}

// TestRenderOfOddLines holds that a line is shown around its place, whatever is
// in it.
func TestRenderOfOddLines(t *testing.T) {
	t.Parallel()
	render := func(text string) string {
		_, report := spec.Parse("", []byte(text))
		require.NotEmpty(t, report.Errors)
		var b strings.Builder
		require.NoError(t, spec.Render(&b, "error", report.Errors[:1], false))
		return b.String()
	}
	long := render("name: p\nstages: [{name: a, x: " + strings.Repeat("y", 500) + ", timeot: 5m}]\n")
	for line := range strings.Lines(long) {
		require.LessOrEqual(t, len([]rune(line)), 200)
	}
	lines := strings.Split(render("name: \"p\u2028\u202e ü\"\nstages: []\n"), "\n")
	require.Equal(t, `   |       ^`, lines[2])
	require.NotContains(t, render("name: p\nstages: \x1b[31m\n"), "\x1b")
	require.NotContains(t, render("name: p\nstages: \"\\e[31m\"\n"), "\x1b")
	require.NotContains(t, lines[1], "\u202e")
}
