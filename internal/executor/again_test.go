package executor_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/executor"
	"belay.run/internal/run"
	"belay.run/internal/task"
)

func TestAJobThatAsksAgainCountsAsRetried(t *testing.T) {
	t.Parallel()
	e := open(t, kinds{
		"fine": fine,
		"again": func(ctx context.Context, o task.Origin) (task.Output, error) {
			task.Again(ctx)
			return fine(ctx, o)
		},
		"in vain": func(ctx context.Context, o task.Origin) (task.Output, error) {
			task.Again(ctx)
			return dead(ctx, o)
		},
	}, executor.Limits{})
	require.True(t, succeeds(t, e, to("again", "a:1")).Retried)
	require.True(t, fails(t, e, to("in vain", "a:1"), run.TriggerDependencyUnavailable).Retried)
	require.False(t, succeeds(t, e, to("fine", "a:1")).Retried)
}
