package expr_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/expr"
)

// BenchmarkString evaluates what a usual variable of a step is made of.
func BenchmarkString(b *testing.B) {
	s := scope()
	for b.Loop() {
		_, err := expr.String("app-${{ inputs.tag }}", s)
		require.NoError(b, err)
	}
}

// BenchmarkBool evaluates a usual condition.
func BenchmarkBool(b *testing.B) {
	s := scope()
	for b.Loop() {
		_, err := expr.Bool(`stages.test.status == "failed" && inputs.count > 1`, s)
		require.NoError(b, err)
	}
}
