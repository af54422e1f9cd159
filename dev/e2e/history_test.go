package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
	check "belay.run/workflows/replay"
)

// histories is where the recorded histories lie that later versions must replay.
const histories = "../../workflows/replay/testdata"

// replay replays the history of a run and of each of its stages: what a worker
// does that takes a run over. With -update it also records them.
func replay(t *testing.T, env *e2e.Env, name string, doc *run.Document) {
	t.Helper()
	one(t, env, name, doc.ID, doc.RunID)
	for _, stage := range doc.Stages {
		if stage.WorkflowID != "" {
			one(t, env, name+"_"+strings.NewReplacer("[", "_", "]", "", "=", "-", ",", "_").Replace(stage.Node), stage.WorkflowID, stage.RunID)
		}
	}
}

// replayReap replays the release of what a run, or a stage of it, left, and the
// pass of the janitor that began it, where one did.
func replayReap(t *testing.T, env *e2e.Env, name, runKey, node string) {
	t.Helper()
	d, err := env.Temporal.Client().DescribeWorkflowExecution(t.Context(), run.ReapID(runKey, node), "")
	require.NoError(t, err)
	reap := d.GetWorkflowExecutionInfo()
	one(t, env, name+"_reap", reap.GetExecution().GetWorkflowId(), reap.GetExecution().GetRunId())
	if by := reap.GetParentExecution(); node == "" {
		one(t, env, name+"_janitor", by.GetWorkflowId(), by.GetRunId())
	}
}

func one(t *testing.T, env *e2e.Env, name, id, runID string) {
	t.Helper()
	history := replayed(t, env, id, runID)
	if *update && !terminated(history) {
		text, err := protojson.Marshal(history)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(histories, name+".json"), append(text, '\n'), 0o644))
	}
}

// replayed is the history of a workflow, which is replayed.
func replayed(t *testing.T, env *e2e.Env, id, runID string) *historypb.History {
	t.Helper()
	history := &historypb.History{}
	iter := env.Temporal.Client().GetWorkflowHistory(t.Context(), id, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iter.HasNext() {
		event, err := iter.Next()
		require.NoError(t, err)
		history.Events = append(history.Events, event)
	}
	if !terminated(history) {
		require.NoError(t, check.Check(history))
	}
	return history
}

// terminated reports whether a history may end in the middle of a task, whose
// commands are lost: it cannot be replayed whole.
func terminated(h *historypb.History) bool {
	return h.GetEvents()[len(h.GetEvents())-1].GetWorkflowExecutionTerminatedEventAttributes() != nil
}
