package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/dev/chaos"
	"belay.run/internal/redistest"
)

// workerVariable makes the test binary a worker.
const workerVariable = "CHAOS_TEST_WORKER"

func TestMain(m *testing.M) {
	if text := os.Getenv(workerVariable); text != "" {
		os.Exit(worker(text))
	}
	goleak.VerifyTestMain(m, redistest.Redialing())
}

func worker(text string) int {
	var args chaos.WorkerArgs
	err := json.Unmarshal([]byte(text), &args)
	if err == nil {
		err = chaos.Worker(context.Background(), args, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func command(ctx context.Context, args chaos.WorkerArgs) (*exec.Cmd, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	return cmd, nil
}

// Everything that is a duplicate is blocked, everything that is meant runs,
// whatever happens to the workers.
func TestDrill(t *testing.T) {
	t.Parallel()
	result, err := chaos.Drill(t.Context(), chaos.Options{
		RedisAddr: redistest.Start(t).Addr, Requests: 3000, Command: command,
	})
	require.NoError(t, err)
	t.Logf("%d requests: %d blocked, %d ran, %d refused; %d stale writes fenced; %v",
		result.Requests, result.Blocked, result.Ran, result.Refused, result.Fenced, result.Rounds)
	require.Empty(t, result.Faults)
	require.InDelta(t, 100, result.Precision(), 0)
	require.InDelta(t, 100, result.Recall(), 0)
	require.Zero(t, result.Stale)
	require.Positive(t, result.Fenced)
	require.Positive(t, result.Refused)
	require.Len(t, result.Rounds, 8)
	for name, n := range result.Rounds {
		require.Positive(t, n, name)
	}
}
