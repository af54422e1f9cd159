package expr

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocsNameEveryFunction holds that no function is left out of the
// documentation.
func TestDocsNameEveryFunction(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/expressions.md")
	require.NoError(t, err)
	for _, name := range functionNames() {
		require.Contains(t, string(text), "`"+name+"(")
	}
}
