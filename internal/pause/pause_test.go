package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/pause"
)

func TestFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, pause.For(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(began))

		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("told to")
		time.AfterFunc(time.Second, func() { cancel(why) })
		require.ErrorIs(t, pause.For(ctx, time.Minute), why)
		require.Equal(t, time.Minute+time.Second, time.Since(began))
	})
}
