package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"belay.run/activities"
	"belay.run/internal/run"
)

// What the store does not have never comes by waiting: it is not tried again, and
// the cause is in words.
func TestPrepareWithoutWhatItLays(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]activities.PrepareInput{
		"the source":                    {SourceRef: "source/none"},
		"artifacts of an earlier stage": {Artifacts: []string{"artifacts/none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := setup(t, nil)
			in.Owner = h.owner
			_, err := h.env.ExecuteActivity(h.steps.Prepare, in)
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app)
			require.Equal(t, string(run.TriggerDependencyUnavailable), app.Type())
			require.True(t, app.NonRetryable())
			require.Regexp(t, "^laying "+name+": [a-z]+/none is not in the store at .*BELAY_STORE", app.Message())
		})
	}
}
