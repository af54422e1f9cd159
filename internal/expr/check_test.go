package expr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/expr"
)

func name(k expr.Kind) *expr.Name { return &expr.Name{Kind: k} }

func group(noun string, names map[string]*expr.Name, order ...string) *expr.Name {
	return &expr.Name{Kind: expr.KindGroup, Members: expr.NewMembers(noun, names, order)}
}

// names are those of a small pipeline.
func names() expr.Members {
	return expr.NewMembers("name", map[string]*expr.Name{
		"inputs": group("input", map[string]*expr.Name{
			"tag": name(expr.KindText), "count": name(expr.KindInt), "ratio": name(expr.KindNumber), "publish": name(expr.KindBool),
		}, "tag", "count", "ratio", "publish"),
		"steps": group("step", map[string]*expr.Name{
			"build-linux": group("name", map[string]*expr.Name{
				"status": name(expr.KindStatus), "exit_code": name(expr.KindInt),
			}, "status", "exit_code"),
		}, "build-linux"),
	}, []string{"inputs", "steps"})
}

func TestCheckAccepts(t *testing.T) {
	t.Parallel()
	c := expr.NewChecker()
	for _, in := range []string{
		"", "plain", "$${{ nope }}", "${{ inputs.tag }}", "${{ inputs.count + 1 }}", "${{ inputs.ratio / 2 }}",
		`${{ steps["build-linux"].status }}`, `${{ upper(inputs.tag) + "x" }}`, `${{ inputs.publish ? "a" : "b" }}`,
		`${{ join(map(split(inputs.tag, "."), upper(#)), "-") }}`, `${{ inputs.tag ?? "none" }}`, `${{ inputs.tag[0:7] }}`,
		`${{ split(inputs.tag, ".")[0] }}`, `${{ max(inputs.count, 2, inputs.ratio) }}`, `${{ first(split(inputs.tag, ".")) ?? "x" }}`,
		`${{ toJSON(inputs.count) }}`, `${{ inputs.tag | trimPrefix("v") }}`,
	} {
		_, errs := c.String(in, names())
		require.Empty(t, errs, in)
	}
	for _, in := range []string{
		"true", "inputs.publish", "${{ !inputs.publish }}", "inputs.count > 2", `inputs.tag == "v1"`, "inputs.ratio >= 1",
		`steps["build-linux"].status == "failed"`, `steps["build-linux"].status in ["failed", "timed_out"]`,
		`steps["build-linux"].exit_code != nil`, `inputs.tag matches "^v[0-9]"`, `inputs.tag not in ["a", "b"]`,
		`any(split(inputs.tag, ","), # startsWith "a")`, "1 < inputs.count < 3", `len(inputs.tag) > 0 and not inputs.publish`,
	} {
		_, errs := c.Bool(in, names())
		require.Empty(t, errs, in)
	}
}

// TestCheckRefuses holds what is said about what does not fit, with its place.
// More is in the corpus of invalid files of package spec.
func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	c := expr.NewChecker()
	type problem struct {
		offset        int
		message, hint string
	}
	for in, want := range map[string][]problem{
		"${{ input.tag }}":                                {{4, "unknown name input", "did you mean inputs?"}},
		"ä ${{ inputs.tga }}":                             {{14, "unknown input tga", "did you mean tag?"}},
		"${{ 'ä' + inputs.tga }}":                         {{18, "unknown input tga", "did you mean tag?"}},
		"${{ inputs.a + inputs.tga }}":                    {{11, "unknown input a", "there is tag, count, ratio, publish"}, {22, "unknown input tga", "did you mean tag?"}},
		"${{ steps.build-linux.status }}":                 {{10, "the name build-linux holds a dash, which reads as minus", `write steps["build-linux"]`}},
		"${{ inputs }}":                                   {{4, "`inputs` is a group of names, not a value", "it holds tag, count, ratio, publish"}},
		"${{ inputs.tag.x }}":                             {{15, "`inputs.tag` is text, it has no x", ""}},
		"${{ inputs.count + 'x' }}":                       {{17, "+ does not work between a whole number and text", `3 is a number and "3" a text; string( ), int( ) and float( ) convert`}},
		"${{ split(inputs.tag, '.') }}":                   {{4, "`split(inputs.tag, '.')` is a list, which has no text form", "make one text of a list with join"}},
		"${{ len(inputs.count) }}":                        {{8, "len needs a list, found a whole number", ""}},
		`${{ steps["build-linux"].status == "success" }}`: {{35, `"success" is no status`, "did you mean succeeded?"}},
		`${{ "fialed" != steps["build-linux"].status }}`:  {{4, `"fialed" is no status`, "did you mean failed?"}},
		"${{ a }} ${{ b }}":                               {{4, "unknown name a", "there is inputs, steps"}, {13, "unknown name b", "there is inputs, steps"}},
	} {
		_, errs := c.String(in, names())
		got := make([]problem, len(errs))
		for i, e := range errs {
			got[i] = problem{e.Offset, e.Message, e.Hint}
		}
		require.Equal(t, want, got, in)
	}
	_, errs := c.Bool("inputs.count", names())
	require.Len(t, errs, 1)
	require.Equal(t, "a condition must be true or false, `inputs.count` is a whole number", errs[0].Message)
}

func TestRefs(t *testing.T) {
	t.Parallel()
	refs, errs := expr.NewChecker().Bool(`inputs.publish && steps["build-linux"].status == "failed" && inputs.publish`, names())
	require.Empty(t, errs)
	require.Equal(t, []expr.Ref{
		{Path: []string{"inputs", "publish"}, Kind: expr.KindBool, Offset: 0},
		{Path: []string{"steps", "build-linux", "status"}, Kind: expr.KindStatus, Offset: 18},
		{Path: []string{"inputs", "publish"}, Kind: expr.KindBool, Offset: 61},
	}, refs)
	require.Equal(t, `steps["build-linux"].status`, expr.Written(refs[1].Path...))
}

func TestNearest(t *testing.T) {
	t.Parallel()
	all := []string{"timeout", "retry", "needs", "run", "uses", "env"}
	for in, want := range map[string]string{
		"timeot": "timeout", "TIMEOUT": "timeout", "tiemout": "timeout", "need": "needs", "rnu": "run",
		"": "", "x": "", "something": "", "e": "", "nv": "env",
	} {
		require.Equal(t, want, expr.Nearest(in, all), in)
	}
}

func TestHas(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		"": false, "x": false, "$${{ x }}": false, "${{ x }}": true, "${{": true, "$${{ a }} ${{ b }}": true, "$ {{ x }}": false,
	} {
		require.Equal(t, want, expr.Has(in), in)
	}
}
