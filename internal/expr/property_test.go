package expr_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	library "github.com/expr-lang/expr"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"belay.run/internal/expr"
)

// expression draws an expression over numbers, texts, booleans and lists that
// means the same to us and to the library's own machine.
func expression(t *rapid.T, depth int) string {
	if depth == 0 {
		return rapid.SampledFrom([]string{
			"1", "2", "0.5", "-3", "true", "false", "nil", `"a"`, `"ab"`, `""`, "n", "f", "s", "yes", "[1, 2]", `["a", "b"]`,
		}).Draw(t, "leaf")
	}
	sub := func() string { return expression(t, depth-1) }
	switch rapid.IntRange(0, 5).Draw(t, "shape") {
	case 0:
		return "(" + rapid.SampledFrom([]string{"!", "-", "not "}).Draw(t, "unary") + sub() + ")"
	case 1:
		return "(" + sub() + " ? " + sub() + " : " + sub() + ")"
	case 2:
		return rapid.SampledFrom([]string{"len", "upper", "trim", "first"}).Draw(t, "function") + "(" + sub() + ")"
	case 3:
		return rapid.SampledFrom([]string{"all", "any", "none", "one", "filter", "count"}).Draw(t, "predicate") +
			"([1, 2, 3], # " + rapid.SampledFrom([]string{"==", "<", ">="}).Draw(t, "operator") + " " + sub() + ")"
	default:
		return "(" + sub() + " " + rapid.SampledFrom([]string{
			"+", "-", "*", "/", "%", "==", "!=", "<", ">", "<=", ">=", "&&", "||", "in", "contains", "startsWith", "endsWith",
		}).Draw(t, "binary") + " " + sub() + ")"
	}
}

// TestAgreesWithTheLibrary holds that a value of ours is the library's too, and
// that what passes the check gives whatever value the library gives.
func TestAgreesWithTheLibrary(t *testing.T) {
	t.Parallel()
	values := map[string]any{"n": 7, "f": 2.5, "s": "abc", "yes": true}
	known := expr.NewMembers("name", map[string]*expr.Name{
		"n": name(expr.KindInt), "f": name(expr.KindNumber), "s": name(expr.KindText), "yes": name(expr.KindBool),
	}, nil)
	rapid.Check(t, func(t *rapid.T) {
		code := expression(t, rapid.IntRange(0, 3).Draw(t, "depth"))
		want, libraryErr := library.Eval(code, values)
		got, err := expr.String("${{ "+code+" }}", expr.Scope(values))
		wanted, isText := textOf(want)
		if err == nil {
			require.NoError(t, libraryErr, code)
			require.Equal(t, wanted, got, code)
		}
		if _, errs := expr.NewChecker().String("${{ "+code+" }}", known); len(errs) == 0 && libraryErr == nil && isText {
			require.NoError(t, err, code)
		}
	})
}

// textOf is the text form that a result of the library has here, if it has one.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool, int:
		return fmt.Sprint(v), true
	case float64:
		s := strconv.FormatFloat(v, 'f', -1, 64)
		return s, s != "NaN" && s != "+Inf" && s != "-Inf"
	}
	return "", false
}

// FuzzExpr holds that no text makes reading, checking or evaluating panic or go
// on for long, and that evaluating it again gives the same.
func FuzzExpr(f *testing.F) {
	for _, seed := range []string{
		"${{ inputs.tag }}", `${{ stages["build-linux"].outputs.digest }}`, `a ${{ upper("x") + 'y' }} $${{ z }}`,
		`${{ any(split(inputs.list, ","), # matches "^a+$") ? 1.5 : -2 }}`, "${{ inputs.count ** 2 % 3 ?? nil }}",
		`${{ inputs.list | split(",") | map(len(#)) | join("-") }}`, "${{", "${{}}", "${{ `}}` }}", "inputs.publish && !false",
		`${{ replace("aaa", "", "b")[1:-1] }}`, "${{ toJSON([1, [2]]) }}", "${{ 9223372036854775807 + 1 }}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		start := time.Now()
		s, sErr := expr.String(in, scope())
		b, bErr := expr.Bool(in, scope())
		c := expr.NewChecker()
		_, found := c.String(in, names())
		_, foundBool := c.Bool(in, names())
		for _, e := range append(found, foundBool...) {
			require.True(t, e.Offset >= 0 && e.Offset <= len(in), "offset %d of %d", e.Offset, len(in))
		}
		again, againErr := expr.String(in, scope())
		require.Equal(t, s, again)
		require.Equal(t, fmt.Sprint(sErr), fmt.Sprint(againErr))
		againBool, againErr := expr.Bool(in, scope())
		require.Equal(t, b, againBool)
		require.Equal(t, fmt.Sprint(bErr), fmt.Sprint(againErr))
		require.Less(t, time.Since(start), 20*time.Second, "evaluation is not bounded")
	})
}
