package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/activities"
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

// TestServicesThatEndAreNotedOnce however many steps tell of them, and fail.
func TestServicesThatEndAreNotedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, plan(stage("s", []spec.Step{step("a"), step("b"), step("c")})))
	tells := func(services ...string) func(context.Context, activities.StepInput) (*activities.StepResult, error) {
		return func(context.Context, activities.StepInput) (*activities.StepResult, error) {
			return &activities.StepResult{Attempt: 1, Services: services}, nil
		}
	}
	b.world.steps["a"], b.world.steps["b"] = tells("db ended"), tells("db ended", "cache ended")
	doc := stageDoc(t, b)
	require.Equal(t, run.Succeeded, doc.Status)
	require.Equal(t, []string{"db ended", "cache ended"}, doc.Notes)
}
