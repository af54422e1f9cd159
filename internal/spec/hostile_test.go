package spec_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/spec"
)

// aliasBomb is a text of a few lines that stands for 9^9 values.
func aliasBomb() string {
	var b strings.Builder
	b.WriteString("name: p\nx-a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "x-a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	b.WriteString("stages: *a9\n")
	return b.String()
}

// deepBomb nests aliases, each of which adds some levels.
func deepBomb() string {
	var b strings.Builder
	b.WriteString("name: p\nx-a0: &a0 [[[[[[[[x]]]]]]]]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "x-a%d: &a%d [[[[[[[[*a%d]]]]]]]]\n", i, i, i-1)
	}
	b.WriteString("stages: *a9\n")
	return b.String()
}

// many256 are as many values as a matrix may have legs.
func many256() string {
	var b strings.Builder
	for i := range 256 {
		fmt.Fprintf(&b, "v%d, ", i)
	}
	return strings.TrimSuffix(b.String(), ", ")
}

func hostile() map[string]string {
	const all = spec.MaxFile / 4 // what is worse than linear shows well before the limit
	header, steps := "name: p\nstages: ", "name: p\nstages:\n  - name: a\n    steps:\n"
	many := func(format string, size int) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	return map[string]string{
		"aliases that multiply":     aliasBomb(),
		"aliases that deepen":       deepBomb(),
		"lists in lists":            header + strings.Repeat("[", all),
		"closed lists in lists":     header + strings.Repeat("[", all/2) + strings.Repeat("]", all/2),
		"maps in maps":              header + strings.Repeat("{a: ", all/4),
		"dashes":                    header + "\n" + strings.Repeat("- ", all/2),
		"question marks":            header + "\n" + strings.Repeat("? ", all/2),
		"anchors":                   header + many("&a%d ", all),
		"many anchors and aliases":  "name: p\nx-a:\n" + many("  - &a%[1]d x\n  - *a%[1]d\n", all),
		"many keys":                 "name: p\n" + many("k%d: 1\n", all),
		"the same key":              "name: p\n" + strings.Repeat("k: 1\n", all/5),
		"many keys near a real one": "name: p\n" + many("timeou%d: 1\n", all),
		"keys in braces":            "x-a: {" + many("k%d: 1, ", all) + "}",
		"a long plain text":         "name: " + strings.Repeat("x", all),
		"a long quoted text":        "name: \"" + strings.Repeat("x", all) + "\"",
		"escapes":                   "name: \"" + strings.Repeat("\\\"", all/2) + "\"",
		"an open quote":             "name: \"" + strings.Repeat("\\\"", all/2),
		"a long script":             steps + "      - name: s\n        run: |\n" + strings.Repeat("          x\n", all/12-10),
		"a script of expressions":   steps + "      - name: s\n        run: |\n" + strings.Repeat("          ${{\n", all/14-10),
		"many expressions":          steps + "      - name: s\n        run: x\n        env:\n          A: " + strings.Repeat("${{ a }}", all/8-20),
		"many steps with one fault": steps + many("      - {name: s%d, run: x, timeot: 1}\n", all-100),
		"the same step name":        steps + strings.Repeat("      - {name: s, run: x}\n", all/26-10),
		"steps that read others":    steps + many("      - {name: s%[1]d, run: x, env: {A: '${{ steps.s%[1]d.status }}'}}\n", all-100),
		"stages in a circle":        "name: p\nstages:\n" + many("  - {name: s%[1]d, needs: [s%[1]d, s0, s1, s2, s3], steps: [{name: s, run: x}]}\n", all-100),
		"a large matrix":            "name: p\nstages:\n  - name: a\n    steps: [{name: s, run: x}]\n    matrix:\n" + many("      k%d: [1, 2, 3, 4, 5, 6, 7, 8, 9]\n", all-200),
		"many values of a matrix":   "name: p\nstages:\n  - name: a\n    steps: [{name: s, run: x}]\n    matrix: {k: [" + many("v%d, ", all-200) + "]}\n",
		"many includes":             "name: p\nstages:\n  - name: a\n    steps: [{name: s, run: x}]\n    matrix:\n      k: [1]\n      include:\n" + many("        - {k: %d}\n", all-200),
		"many includes that extend": "name: p\nstages:\n  - name: a\n    steps: [{name: s, run: x}]\n    matrix:\n      k: [1, 2, 3, 4]\n      l: [1, 2, 3, 4, 5, 6, 7, 8]\n      include:\n" + many("        - {m%d: x}\n", all-300),
		"many excludes":             "name: p\nstages:\n  - name: a\n    steps: [{name: s, run: x}]\n    matrix:\n      k: [1, 2, 3, 4]\n      l: [1, 2, 3, 4, 5, 6, 7, 8]\n      exclude:\n" + many("        - {k: %d}\n", all-300),
		"many inputs":               "name: p\ninputs:\n" + many("  i%d: {default: x}\n", all-200) + "stages: [{name: a, steps: [{name: s, run: x}]}]\n",
		"many variables":            "name: p\nenv:\n" + many("  V%d: x\n", all/2) + "stages:\n  - name: a\n    steps:\n" + many("      - {name: s%d, run: x, env: {A: '${{ env.V1 }}'}}\n", all/2-100),
		"many secrets":              "name: p\nsecrets: [" + many("S%d, ", all-200) + "]\nstages: [{name: a, steps: [{name: s, run: x, secrets: [T]}]}]\n",
		"many keyed steps": "name: p\ninputs: {t: {default: x}}\nstages:\n  - name: a\n    matrix: {a: [" + many256() + "]}\n    steps:\n" +
			many("      - {name: s%[1]d, run: x, dedup: {key: 'k%[1]d-${{ matrix.a }}-${{ inputs.t }}'}}\n", all-200),
		"the same key in many legs": "name: p\nstages:\n" + many("  - name: s%[1]d\n    matrix: {a: ["+many256()+"]}\n    steps: [{name: s, run: x, dedup: {key: 'k${{ matrix.a }}${{ env.A }}'}}]\n    env: {A: '%[1]d'}\n", all-200),
		"keys of many variables": "name: p\nenv:\n" + many("  V%[1]d: x\n", all/2) + "stages:\n  - name: a\n    steps:\n" +
			many("      - {name: s%[1]d, run: x, dedup: {key: '${{ env.V%[1]d }}-%[1]d'}}\n", all/2-100),
		"keys of many of many variables": "name: p\nenv:\n" + many("  V%[1]d: x\n", all/2) + "stages:\n  - name: a\n    steps:\n" +
			many("      - {name: s%[1]d, run: x, dedup: {key: '%[1]d"+strings.Repeat("-${{ env.V9999 }}", 90)+"'}}\n", all/2-100),
		"keys of variables of variables": "name: p\nenv: {P: '" + strings.Repeat("${{ run.attempt }}", 100) + "'}\nstages:\n  - name: a\n    env: {S: '" + strings.Repeat("${{ env.P }}", 100) +
			"'}\n    steps: [{name: s, run: x, env: {K: '" + strings.Repeat("${{ env.S }}", 100) + "'}, dedup: {key: '" + strings.Repeat("${{ env.K }}", 100) + "'}}]\n",
		"many inputs and keys": "name: p\ninputs:\n" + many("  tenant%d_org: {default: x}\n", all/2) + "stages:\n  - name: a\n    steps:\n" +
			many("      - {name: s%[1]d, run: x, dedup: {key: 'k%[1]d-${{ inputs.tenant0_org }}'}}\n", all/2-200),
		"spaces":             strings.Repeat(" ", all),
		"line breaks":        strings.Repeat("\n", all),
		"carriage returns":   strings.Repeat("a: b\r", all/5),
		"comments":           strings.Repeat("#\n", all/2),
		"documents":          strings.Repeat("---\n", all/4),
		"tags":               header + strings.Repeat("!a ", all/3),
		"percent signs":      strings.Repeat("%", all),
		"colons":             strings.Repeat("a:", all/2),
		"commas":             header + "[" + strings.Repeat(",", all),
		"tabs":               header + "\n" + strings.Repeat("\t", all),
		"half a character":   header + "\xe2\x82",
		"over the limit":     strings.Repeat("x", spec.MaxFile+1),
		"far over the limit": strings.Repeat("- x\n", 4*spec.MaxFile),
	}
}

// TestHostile holds that nothing a file can hold takes long, or much memory.
func TestHostile(t *testing.T) {
	for name, text := range hostile() {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			requireSoon(t, func() {
				file, report := spec.Parse("p.yaml", []byte(text))
				require.Equal(t, file == nil, len(report.Errors) > 0)
				require.LessOrEqual(t, len(report.Errors), 201)
				require.LessOrEqual(t, len(report.Warnings), 200)
				var b strings.Builder
				require.NoError(t, spec.Render(&b, "error", report.Errors, false))
				require.Less(t, b.Len(), 512<<10)
			})
			runtime.ReadMemStats(&after)
			const limit = 512 << 20
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(limit))
		})
	}
}

// requireSoon fails where f takes longer than anything bounded would on a slow
// machine.
func requireSoon(t *testing.T, f func()) {
	t.Helper()
	start := time.Now()
	f()
	require.Less(t, time.Since(start), time.Minute, "reading is not bounded")
}

// TestLarge holds that the largest pipelines are read, and those over the bounds
// refused.
func TestLarge(t *testing.T) {
	t.Parallel()
	stages := func(n int) string {
		var b strings.Builder
		b.WriteString("name: p\nstages:\n")
		for i := range n {
			needs := ""
			if i > 2 {
				needs = fmt.Sprintf("needs: [s%d, s%d], ", i-1, i-3)
			}
			fmt.Fprintf(&b, "  - {name: s%d, %ssteps: [{name: s, run: x, when: stages.s0.status != 'failed'}]}\n", i, needs)
		}
		return strings.Replace(b.String(), ", when: stages.s0.status != 'failed'", "", 3)
	}
	steps := func(n int) string {
		var b strings.Builder
		b.WriteString("name: p\nstages:\n  - name: a\n    steps:\n      - name: g\n        parallel:\n")
		for i := range n {
			fmt.Fprintf(&b, "          - {name: s%d, run: x}\n", i)
		}
		return b.String()
	}
	variables := "name: p\nenv: {A: " + strings.Repeat("x", 64<<10) + "}\nstages:\n  - {name: a, env: {A: short, B: " +
		strings.Repeat("x", 100<<10) + "}, steps: [{name: s, run: x, env: {%s}}]}\n"
	for name, tc := range map[string]struct{ text, want string }{
		"500 stages":     {stages(500), ""},
		"501 stages":     {stages(501), "the pipeline has 501 stages, at most 500 are allowed"},
		"1000 steps":     {steps(1000), ""},
		"1001 steps":     {steps(1001), "the stage has 1001 steps, at most 1000 are allowed"},
		"variables":      {fmt.Sprintf(variables, "C: "+strings.Repeat("x", 20<<10)), ""},
		"more variables": {fmt.Sprintf(variables, "C: "+strings.Repeat("x", 30<<10)), "the variables of the step are 133134 bytes large, at most 131072 are allowed"},
	} {
		_, report := spec.Parse("p.yaml", []byte(tc.text))
		if tc.want == "" {
			require.Empty(t, report.Errors, name)
			continue
		}
		require.Len(t, report.Errors, 1, name)
		require.Equal(t, tc.want, report.Errors[0].Message)
	}
}

// FuzzParse holds that no text makes Parse panic or go on for long, that places
// lie in the file, and that what is valid gives a plan that survives JSON.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/valid/*.yaml", "testdata/invalid/*.yaml", "../../examples/*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, name := range files {
			text, err := os.ReadFile(name)
			require.NoError(f, err)
			f.Add(text)
		}
	}
	f.Add([]byte("#\n---"))
	f.Add([]byte(aliasBomb()))
	f.Add([]byte(deepBomb()))
	f.Fuzz(func(t *testing.T, text []byte) {
		requireSoon(t, func() {
			file, report := spec.Parse("p.yaml", text)
			require.Equal(t, file == nil, len(report.Errors) > 0)
			lines := strings.Count(string(text), "\n") + 1
			for _, p := range append(report.Errors, report.Warnings...) {
				require.NotEmpty(t, p.Message)
				require.True(t, p.Line >= 0 && p.Line <= lines, "line %d of %d", p.Line, lines)
			}
			require.NoError(t, spec.Render(&strings.Builder{}, "error", report.Errors, true))
			if file == nil {
				return
			}
			plan, err := file.Plan(nil)
			if err == nil {
				requireSurvives(t, plan)
			}
		})
	})
}
