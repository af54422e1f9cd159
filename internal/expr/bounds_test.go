package expr_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/expr"
)

// TestErrors evaluates what cannot be evaluated, and compares what is said.
func TestErrors(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"${{ steps.skipped.outputs.x }}":          "`steps.skipped.outputs.x` has no value",
		"${{ nil }}":                              "`nil` has no value",
		"a ${{ nothing.x }}":                      "unknown name nothing",
		"${{ inputs.tag.x }}":                     "inputs.tag is text, it has no x",
		"${{ inputs }}":                           "`inputs` is a group of names, which has no text form",
		`${{ split(inputs.list, ",") }}`:          "`split(inputs.list, \",\")` is a list, which has no text form",
		`${{ split("a", ",")[3] }}`:               "there is no item 3 in a list of 1",
		`${{ int("abc") }}`:                       `int: "abc" is not a whole number`,
		`${{ float("abc") }}`:                     `float: "abc" is not a number`,
		"${{ 1 / 0 }}":                            "`1 / 0` is not a finite number, which has no text form",
		"${{ 1 % 0 }}":                            "integer divide by zero",
		`${{ inputs.tag + 1 }}`:                   "invalid operation: string + int",
		`${{ inputs.tag ? 1 : 2 }}`:               "expected true or false, found text",
		`${{ inputs.nothing > 1 }}`:               "> needs two values, found null",
		`${{ upper(1) }}`:                         "upper: expected text, found a number",
		`${{ upper("a", "b") }}`:                  "upper: expected 1 arguments, found 2",
		`${{ any("a", true) }}`:                   "any needs a list, found text",
		`${{ any([1], #) }}`:                      "expected true or false, found a number",
		`${{ "a"["b":] }}`:                        "expected a whole number, found text",
		"${{ }}":                                  "the expression is empty",
		"${{ 1 +":                                 "${{ without its }}",
		`${{ "a" matches "(" }}`:                  "bad pattern: error parsing regexp: missing closing ): `(`",
		`${{ inputs.tag matches inputs.tag }}`:    "the pattern of matches must be a quoted text",
		`${{ now() }}`:                            "function now is not available: an expression may not depend on the clock",
		`${{ values(inputs) }}`:                   "function values is not available: its result has no fixed order",
		`${{ uper("x") }}`:                        "unknown function uper",
		`${{ $env }}`:                             "unknown name $env",
		`${{ inputs[inputs.tag] }}`:               "a name in brackets must be a quoted text",
		`${{ dirty }}`:                            "`dirty` is not valid UTF-8",
		`${{ {a: 1}.a }}`:                         "{ } is not supported in expressions",
		`${{ let x = 1; x }}`:                     "let is not supported in expressions",
		`${{ 1..3 }}`:                             "the operator .. is not supported in expressions",
		`${{ reduce([1], #acc + #, 0) }}`:         "unknown function reduce",
		`${{ inputs.upper() }}`:                   "only functions can be called",
		`${{ b"x" }}`:                             "byte strings are not supported in expressions",
		`${{ ::split("a", "b") }}`:                "unknown function split",
		`${{ first([]) }}`:                        "`first([])` has no value",
		`${{ ` + strings.Repeat(" ", 5000) + `}}`: "the expression is empty",
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			got, err := expr.String(in, scope())
			require.EqualError(t, err, want)
			require.Empty(t, got)
			var e *expr.Error
			require.ErrorAs(t, err, &e)
			require.True(t, e.Offset >= 0 && e.Offset <= len(in), "offset %d", e.Offset)
		})
	}
}

func TestBoolErrors(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"inputs.tag":                   "the condition `inputs.tag` is text, not true or false",
		"inputs.nothing":               "the condition `inputs.nothing` is null, not true or false",
		"":                             "the expression is empty",
		"${{ true }} && false":         "a condition is one expression, found text after its ${{ }}",
		"${{ true }}${{ false }}":      "a condition is one expression, found text after its ${{ }}",
		"${{ true":                     "${{ without its }}",
		"true &&":                      "the expression ends too early",
		"inputs.tag = 'x'":             "unexpected =",
		"inputs.tag == 'x":             "a quoted text is not closed",
		"inputs.publish && inputs.tag": "expected true or false, found text",
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			_, err := expr.Bool(in, scope())
			require.EqualError(t, err, want)
		})
	}
}

// TestBounds evaluates short expressions that would take for ever, or all memory.
func TestBounds(t *testing.T) {
	t.Parallel()
	big := expr.Scope{
		"big":   strings.Repeat("x", expr.MaxText),
		"comma": strings.Repeat("a,", expr.MaxItems/2),
	}
	deep := func(open, body, closing string, n int) string {
		return strings.Repeat(open, n) + body + strings.Repeat(closing, n)
	}
	for name, tc := range map[string]struct{ in, want string }{
		"text that doubles":     {deep("replace(", `"x"`, `, "x", "xxxxxxxx")`, 20), "longer than"},
		"text that is squared":  {`replace(big, "x", big)`, "longer than"},
		"long sum":              {strings.TrimSuffix(strings.Repeat("big + ", 100), " + "), "longer than"},
		"joined":                {`join(map(["a", "b"], big))`, "longer than"},
		"list of large texts":   {`join(map(split(comma, ","), big))`, "too many steps"},
		"many items":            {`split(big, "")`, "more than 10000 items"},
		"loops in loops":        {deep(`all(split(comma, ","), `, "true", ")", 6), "too many steps"},
		"loop over large texts": {`all(split(comma, ","), big contains "y" || true)`, "too many steps"},
		"large pattern":         {`big matches "(a{1000}){1000}"`, "bad pattern"},
		"large program":         {`big matches "a{999}b{999}"`, "pattern is too large"},
		"slow pattern":          {`all(split(comma, ","), !(big matches "(x+x+)+y"))`, "too many steps"},
		"escaped many times":    {deep("toJSON(", "big", ")", 20), "longer than"},
		"too long":              {strings.Repeat("1+", expr.MaxLength/2) + "1", "bytes long"},
		"too many nodes":        {strings.Repeat("1+", expr.MaxNodes) + "1", "more than 500"},
		"deep brackets":         {deep("(", "1", ")", 2000), ""},
		"many nots":             {strings.Repeat("!", 490) + "true", ""},
		"open brackets":         {strings.Repeat("(", 4000), "ends too early"},
		"open lists":            {strings.Repeat("[", 4000), "ends too early"},
		"large number":          {strings.Repeat("9", 100), "invalid integer literal"},
		"large power":           {"2 ** 5000", "not a finite number"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := expr.String("${{ "+tc.in+" }}", big)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestStringBoundsTheWholeText(t *testing.T) {
	t.Parallel()
	s := expr.Scope{"half": strings.Repeat("x", expr.MaxText/2)}
	got, err := expr.String("${{ half }}${{ half }}", s)
	require.NoError(t, err)
	require.Len(t, got, expr.MaxText)
	_, err = expr.String("${{ half }}${{ half }}!", s)
	require.ErrorContains(t, err, "longer than")
}

// TestRepeatable evaluates again, and over a scope that went through JSON as it
// does in a workflow's history: the result stays the same, errors included.
func TestRepeatable(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(scope())
	require.NoError(t, err)
	for _, in := range []string{
		"${{ inputs.count % 2 }}", "${{ inputs.whole }}", "${{ inputs.ratio * 3 }}", "${{ inputs.count == 3 }}",
		"${{ inputs.count / 2 }}", "${{ nope.a + nope.b }}", "${{ inputs }}", "${{ stages.test.status }}",
		`${{ stages["build-linux"].steps.compile.exit_code + 1 }}`, "${{ max(inputs.count, inputs.ratio) }}",
		"${{ toJSON(inputs.whole) }}", "${{ string(inputs.count) + 'x' }}", "${{ 10000000 * 10000000 }}",
	} {
		want, wantErr := expr.String(in, scope())
		for range 20 {
			var s expr.Scope
			require.NoError(t, json.Unmarshal(text, &s))
			got, err := expr.String(in, s)
			require.Equal(t, want, got, in)
			require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err), in)
		}
	}
}
