package host

import (
	"bytes"
	"context"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"belay.run/internal/telemetry"
)

// TestSwitchLevel holds that one signal shows more, the next what was shown before.
func TestSwitchLevel(t *testing.T) {
	t.Parallel()
	for usual, other := range map[string]string{"info": "debug", "error": "debug", "debug": "info"} {
		t.Run(usual, func(t *testing.T) {
			t.Parallel()
			log, level, err := telemetry.NewAdjustable(new(bytes.Buffer), usual, telemetry.FormatJSON)
			require.NoError(t, err)
			signals := make(chan os.Signal)
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan struct{})
			go func() { switchLevel(ctx, signals, level, log); close(done) }()
			signals <- syscall.SIGUSR1
			signals <- syscall.SIGUSR1 // taken when the first was heeded
			cancel(nil)
			<-done
			require.Equal(t, usual, level.Level().String())

			ctx, cancel = context.WithCancelCause(t.Context())
			done = make(chan struct{})
			go func() { switchLevel(ctx, signals, level, log); close(done) }()
			signals <- syscall.SIGUSR1
			cancel(nil)
			<-done
			require.Equal(t, other, level.Level().String())
			require.Equal(t, other == "debug", log.Core().Enabled(zap.DebugLevel))
		})
	}
}
