package activities

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
)

func TestClassify(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want stopKind
	}{
		"a cancel":           {temporal.NewCanceledError(), stopCancelled},
		"a closed workflow":  {fmt.Errorf("beat: %w", serviceerror.NewNotFound("workflow execution already completed")), stopClosed},
		"a stopping worker":  {worker.ErrWorkerShutdown, stopShutdown},
		"a paused activity":  {activity.ErrActivityPaused, stopOperator},
		"an activity set to": {activity.ErrActivityReset, stopOperator},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, classify(tc.err).kind)
		})
	}
	for name, err := range map[string]error{
		"no error":                    nil,
		"a heartbeat that timed out":  context.DeadlineExceeded,
		"Temporal away":               serviceerror.NewUnavailable("connection refused"),
		"a context cancelled by hand": context.Canceled,
		"something else":              errors.New("boom"),
	} {
		t.Run("KeepsRunningOn "+name, func(t *testing.T) {
			t.Parallel()
			require.Nil(t, classify(err))
		})
	}
}
