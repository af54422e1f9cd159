package run_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
)

func TestScope(t *testing.T) {
	t.Parallel()
	tenant, project, pipeline, ok := run.Scope(run.ID("acme", "web/shop", "déploi 1", "a/b"))
	require.True(t, ok)
	require.Equal(t, []string{"acme", "web/shop", "déploi 1"}, []string{tenant, project, pipeline})
	for _, id := range []string{"", "my-run", "a/b/c", "a/b/c/d", "a/b/c/x/y", "a/b/%zz/r/y"} {
		_, _, _, ok := run.Scope(id)
		require.False(t, ok, id)
	}
}
