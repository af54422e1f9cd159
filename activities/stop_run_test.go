package activities_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/cancels"
	"belay.run/internal/run"
)

func TestEndRun(t *testing.T) {
	t.Parallel()
	cause := run.Cause{Trigger: run.TriggerUser, By: "ada", Message: "wrong tag"}

	t.Run("EndsABodyAndReportsItWhenItsStageAsks", func(t *testing.T) {
		t.Parallel()
		h := setup(t, nil)
		ended := h.start(t, `: > "$BEGAN"; exec sleep 3600`, func(in *activities.StepInput) {
			in.Body, in.Env = true, map[string]string{}
		})
		activities.EndRun(h.steps, cancels.Cancel{RunKey: "k1", Cause: cause})
		require.Eventually(t, func() bool {
			left, err := os.ReadDir(h.dirs.Temp)
			return err == nil && len(left) == 0
		}, time.Minute, time.Millisecond, "the last thing that the attempt does itself")
		require.Equal(t, 1, activities.Running(h.steps))
		require.Empty(t, ended, "its stage has not asked")
		require.NoError(t, h.end())
		require.True(t, temporal.IsCanceledError(<-ended))
	})

	for name, left := range map[string]struct {
		body   bool
		cancel string
	}{
		"LeavesWhatFollowsABody": {false, "k1"},
		"LeavesOtherRuns":        {true, "k2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := setup(t, nil)
			on := filepath.Join(t.TempDir(), "on")
			ended := h.start(t, `: > "$BEGAN"; until test -e "$ON"; do sleep 0.01; done`, func(in *activities.StepInput) {
				in.Body, in.Env = left.body, map[string]string{"ON": on}
			})
			activities.EndRun(h.steps, cancels.Cancel{RunKey: left.cancel, Cause: cause})
			require.NoError(t, os.WriteFile(on, nil, 0o600))
			require.NoError(t, <-ended)
		})
	}
}

// start runs a step beside the test, and returns once its script has made the
// file $BEGAN.
func (h *host) start(t *testing.T, script string, edit func(*activities.StepInput)) <-chan error {
	t.Helper()
	began := filepath.Join(t.TempDir(), "began")
	ended := make(chan error, 1)
	in := h.input(script, edit, func(in *activities.StepInput) { in.Env["BEGAN"] = began })
	go func() {
		_, err := h.env.ExecuteActivity(h.steps.RunStep, in)
		ended <- err
	}()
	requireFile(t, began)
	return ended
}

func requireFile(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := os.Stat(path)
		return err == nil
	}, time.Minute, time.Millisecond)
}
