package host

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/config"
)

// TestHealthIsReadyOnlyWhileEverythingAnswers: what the status says and what is
// listed beside it are one thing.
func TestHealthIsReadyOnlyWhileEverythingAnswers(t *testing.T) {
	t.Parallel()
	var r readiness
	away := &config.UnreachableError{Service: "Redis", Address: "there", Err: errors.New("connection refused")}
	r.set(StatusReady)
	require.Equal(t, StatusReady, r.health().Status)
	require.True(t, r.silent(away))
	require.Equal(t, StatusWaiting, r.health().Status)
	require.Len(t, r.health().WaitingFor, 1)
	require.True(t, r.answers("Redis"))
	require.Equal(t, StatusReady, r.health().Status)
	require.True(t, r.silent(away))
	r.set(StatusDraining)
	require.Equal(t, StatusDraining, r.health().Status, "it says what counts more")
}
