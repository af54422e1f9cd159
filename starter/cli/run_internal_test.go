package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
)

// TestCulprit is named where the run has ended for a step that has a log.
func TestCulprit(t *testing.T) {
	t.Parallel()
	d := run.Document{
		Status: run.Failed, Cause: &run.Cause{Source: "a/s"},
		Stages: []run.Stage{{Steps: []run.Step{{Node: "a/r", GracePeriod: "10s"}, {Node: "a/s", GracePeriod: "10s"}}}},
	}
	require.Equal(t, "a/s", culprit(&d))
	d.Stages[0].Steps[1].GracePeriod = ""
	require.Empty(t, culprit(&d), "a built-in step, which has no log")
	d.Cause.Source = "a"
	require.Empty(t, culprit(&d), "no step")
	d.Status, d.Cause.Source = run.Cancelled, "a/r"
	require.Empty(t, culprit(&d), "nobody looks for it")
}
