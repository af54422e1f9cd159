package expr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/expr"
)

func scope() expr.Scope {
	return expr.Scope{
		"inputs":   map[string]any{"tag": "v1.4.2", "count": 3, "ratio": 1.5, "whole": 2.0, "publish": true, "list": "a,b,c"},
		"dirty":    "\xff",
		"env":      map[string]any{"PATH_X": "/x"},
		"pipeline": map[string]any{"name": "release", "status": "running"},
		"stages": map[string]any{
			"build-linux": map[string]any{
				"status":  "succeeded",
				"outputs": map[string]any{"digest": "sha256:abc"},
				"steps": map[string]any{
					"compile": map[string]any{"status": "succeeded", "exit_code": 0, "outputs": map[string]any{"digest": "sha256:abc"}},
				},
			},
			"test": map[string]any{"status": "failed", "legs": map[string]any{
				"arch=arm64,os=linux": map[string]any{"status": "failed", "outputs": map[string]any{"report": "r"}},
			}},
		},
		"steps": map[string]any{"skipped": map[string]any{"status": "skipped"}},
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, in, want string }{
		{"no expression", "plain $x {y}", "plain $x {y}"},
		{"empty", "", ""},
		{"text", "a-${{ inputs.tag }}-b", "a-v1.4.2-b"},
		{"whole number", "${{ inputs.count }}", "3"},
		{"fraction", "${{ inputs.ratio }}", "1.5"},
		{"number that is whole", "${{ inputs.whole }}", "2"},
		{"boolean", "${{ inputs.publish }}", "true"},
		{"no spaces", "${{inputs.tag}}${{inputs.count}}", "v1.4.23"},
		{"escape", "$${{ inputs.tag }}", "${{ inputs.tag }}"},
		{"escape beside an expression", "$${{x}} ${{ inputs.tag }} $${{", "${{x}} v1.4.2 ${{"},
		{"closing in a quoted text", `${{ "}}" + '}}' }}!`, "}}}}!"},
		{"dashed name", `${{ stages["build-linux"].outputs.digest }}`, "sha256:abc"},
		{"long form", `${{ stages["build-linux"].steps.compile.exit_code }}`, "0"},
		{"leg", `${{ stages.test.legs["arch=arm64,os=linux"].outputs.report }}`, "r"},
		{"default", `${{ steps.skipped.outputs.x ?? "none" }}`, "none"},
		{"choice", `${{ inputs.publish ? "yes" : "no" }}`, "yes"},
		{"functions", `${{ upper(trimPrefix(inputs.tag, "v")) + "/" + string(len(inputs.tag)) }}`, "1.4.2/6"},
		{"pipe", `${{ inputs.list | split(",") | map(upper(#)) | join("+") }}`, "A+B+C"},
		{"slice by characters", `${{ "äöü"[0:2] }}`, "äö"},
		{"item", `${{ split(inputs.list, ",")[-1] }}`, "c"},
		{"arithmetic", `${{ inputs.count * 2 + 1 }}`, "7"},
		{"division", `${{ 6 / 4 }}`, "1.5"},
		{"over several lines", "${{\n  inputs.tag\n}}", "v1.4.2"},
		{"JSON", `${{ toJSON(inputs.tag + "\"") }}`, `"v1.4.2\""`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := expr.String(tc.in, scope())
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestBool(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		`inputs.publish`:                                  true,
		`${{ inputs.publish }}`:                           true,
		`  !inputs.publish `:                              false,
		`inputs.count > 2 && inputs.ratio < 2`:            true,
		`stages.test.status == "failed"`:                  true,
		`stages.test.status in ["failed", "timed_out"]`:   true,
		`stages.test.status not in ["succeeded"]`:         true,
		`steps.skipped.exit_code == 0`:                    false,
		`steps.skipped.exit_code == nil`:                  true,
		`any(split(inputs.list, ","), # == "b")`:          true,
		`all(split(inputs.list, ","), any(["a"], true))`:  true,
		`inputs.tag matches "^v[0-9]+\\."`:                true,
		`inputs.tag startsWith "v" or inputs.nothing > 3`: true,
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			got, err := expr.Bool(in, scope())
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}
