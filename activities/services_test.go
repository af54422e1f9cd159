package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

// TestServicesWithoutAnEngine fail with what to do about it, although nothing of
// theirs is known by then.
func TestServicesWithoutAnEngine(t *testing.T) {
	t.Parallel()
	h := setup(t, nil)
	_, err := h.env.ExecuteActivity(h.steps.StartServices, activities.ServicesInput{
		Owner: h.owner, Services: []spec.Service{{Name: "db", Image: spec.Image{Name: "postgres:17"}}},
	})
	requireTrigger(t, run.TriggerDependencyUnavailable, err, false)
	require.ErrorContains(t, err, "has no container engine: set container_engine of its worker")
}
