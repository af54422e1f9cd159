package replay_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"

	"belay.run/workflows/replay"
)

// TestRecordedHistories replays runs of every shape: a change of the workflows
// that would break runs under way fails here. Those of the scenarios are recorded by
// `go test ./dev/e2e -run TestScenarios -update`, those from 30 on, of runs that end
// early, by the tests of dev/e2e that call replay: `go test ./dev/e2e -run
// 'EndsTheWholeTree|ReapsATerminated|TerminatedAlone|TakesItsProcesses|IsReplaced|HostThatReturns|TestBatch' -update`.
// Recordings of earlier releases stay.
func TestRecordedHistories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files, "no recorded histories")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, replay.Check(read(t, file)))
		})
	}
}

// TestAChangeIsFound is the counter-test: a history that tells of something else
// than the workflows would do is refused.
func TestAChangeIsFound(t *testing.T) {
	t.Parallel()
	history := read(t, "testdata/01_outputs_and_artifacts.json")
	for _, event := range history.GetEvents() {
		if a := event.GetActivityTaskScheduledEventAttributes(); a != nil {
			a.ActivityType.Name = "Other"
		}
	}
	require.ErrorContains(t, replay.Check(history), "TMPRL1100")
}

func read(t *testing.T, file string) *historypb.History {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	history, err := client.HistoryFromJSON(f, client.HistoryJSONOptions{})
	require.NoError(t, err)
	return history
}
