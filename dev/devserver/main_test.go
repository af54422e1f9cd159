package devserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"belay.run/dev/devserver"
)

func TestTry(t *testing.T) {
	t0 := time.Now()
	s, err := devserver.Start(t.Context(), devserver.Options{})
	require.NoError(t, err)
	t.Log("start", time.Since(t0))
	_, err = s.Client().ExecuteWorkflow(context.Background(), client.StartWorkflowOptions{TaskQueue: "x"}, "foo")
	require.NoError(t, err)
	t0 = time.Now()
	require.NoError(t, s.Stop())
	t.Log("stop", time.Since(t0))
	dir := t.TempDir()
	for range 3 {
		t0 = time.Now()
		s, err = devserver.Start(t.Context(), devserver.Options{Dir: dir})
		require.NoError(t, err)
		t.Log("start", time.Since(t0))
		t0 = time.Now()
		require.NoError(t, s.Stop())
		t.Log("stop", time.Since(t0))
	}
}
