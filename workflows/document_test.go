package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// TestStepsSayTheirGracePeriod in the record of the run: those that have processes.
func TestStepsSayTheirGracePeriod(t *testing.T) {
	t.Parallel()
	b := setup(t, plan(stage("s", []spec.Step{
		step("a", func(s *spec.Step) { s.Run, s.GracePeriod = []spec.Command{{Script: "true"}}, 90*time.Second }),
		step("b", func(s *spec.Step) { s.Run, s.Uses, s.GracePeriod = nil, "noop", 10*time.Second }),
	})))
	doc := stageDoc(t, b)
	require.Equal(t, run.Succeeded, doc.Status)
	require.Equal(t, "1m30s", doc.Steps[0].GracePeriod)
	require.Empty(t, doc.Steps[1].GracePeriod)
}
