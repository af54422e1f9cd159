package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/run"
	"belay.run/internal/spec"
)

func (w *world) StartServices(_ context.Context, in activities.ServicesInput) ([]activities.ServiceAddress, error) {
	var out []activities.ServiceAddress
	for _, s := range in.Services {
		w.note("service " + s.Name + " of " + s.Image.Name + " with " + s.Env["LEG"])
		out = append(out, activities.ServiceAddress{Name: s.Name, Ports: s.Ports, Published: []int{40000}})
	}
	return out, nil
}

// withDB gives a stage a service.
func withDB(s *spec.Stage) {
	s.Env = map[string]string{"V": "17"}
	s.Services = []spec.Service{{
		Name: "db", Image: spec.Image{Name: "db:${{ stage.name }}"}, Env: map[string]string{"LEG": "${{ env.V }}"}, Ports: []int{5432},
	}}
}

func TestServicesOfStages(t *testing.T) {
	t.Parallel()

	t.Run("StartBeforeTheStepsWhichLearnWhereTheyAre", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a", func(s *spec.Step) {
			s.Container = &spec.Container{Image: spec.Image{Name: "tool:${{ env.V }}"}}
		})}, withDB)))
		doc := b.run(t)
		require.Equal(t, run.Succeeded, doc.Status)
		require.Equal(t, []string{"bind s", "service db of db:s with 17", "run s/a", "release s"}, b.world.all())
		in := b.world.input["s/a"]
		require.Equal(t, []activities.ServiceAddress{{Name: "db", Ports: []int{5432}, Published: []int{40000}}}, in.Services)
		require.Equal(t, "tool:17", in.Step.Container.Image.Name)
		require.Contains(t, doc.Stages[0].Resources, run.Resource{Kind: "container", Name: "db", State: run.ResourceReleased, Attempts: 1})
	})

	t.Run("NeedAHostEvenWhereNoStepDoes", func(t *testing.T) {
		t.Parallel()
		light := spec.Step{Name: "n", Uses: "noop", Timeout: time.Minute, OnFailure: abort, Retry: spec.Retry{MaxAttempts: 1}}
		b := setup(t, plan(stage("s", []spec.Step{light}, withDB)))
		require.Equal(t, run.Succeeded, b.run(t).Status)
		require.Contains(t, b.world.all(), "service db of db:s with 17")
		require.Contains(t, b.world.all(), "release s")
	})

	t.Run("ThatFailFailTheStageAndAreReleased", func(t *testing.T) {
		t.Parallel()
		b := setup(t, plan(stage("s", []spec.Step{step("a")}, withDB)))
		b.OnActivity("StartServices", anything, anything).Return(nil, temporal.NewNonRetryableApplicationError(
			"it ended with exit code 4", string(run.TriggerDependencyUnavailable), nil))
		doc := b.run(t)
		require.Equal(t, run.Failed, doc.Status)
		require.Equal(t, &run.Cause{Trigger: run.TriggerDependencyUnavailable, Source: "s", Message: "it ended with exit code 4"}, doc.Cause)
		require.Equal(t, []string{"bind s", "release s"}, b.world.all())
	})
}
