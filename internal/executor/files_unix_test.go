//go:build unix

package executor_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/executor"
)

// A named pipe in the place of a file of limits has nobody who writes to it: to
// open it as a file would wait for ever.
func TestANamedPipeIsNoFileOfLimits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err := executor.LoadLimits(path)
	require.ErrorContains(t, err, "is not a regular file")
}
