package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"
	"go.uber.org/zap"

	"belay.run/internal/telemetry"
)

func TestNewLogger(t *testing.T) {
	t.Parallel()

	t.Run("JSONLineFromItsLevelUp", func(t *testing.T) {
		t.Parallel()
		var buf bytes.Buffer
		log, err := telemetry.NewLogger(&buf, "warn", telemetry.FormatJSON)
		require.NoError(t, err)
		log.Info("dropped")
		log.Warn("kept", zap.Int("n", 3))

		var line map[string]any
		require.NoError(t, json.Unmarshal(buf.Bytes(), &line))
		require.Equal(t, "kept", line["message"])
		require.Equal(t, "warn", line["level"])
		require.InEpsilon(t, 3, line["n"], 0)
		require.NotEmpty(t, line["time"])
	})

	t.Run("ConsoleIsPlainText", func(t *testing.T) {
		t.Parallel()
		var buf bytes.Buffer
		log, err := telemetry.NewLogger(&buf, "debug", telemetry.FormatConsole)
		require.NoError(t, err)
		log.Debug("hello")
		require.Contains(t, buf.String(), "DEBUG")
		require.Contains(t, buf.String(), "hello")
		require.False(t, json.Valid(buf.Bytes()))
	})

	t.Run("RefusesWhatItDoesNotKnow", func(t *testing.T) {
		t.Parallel()
		for _, level := range []string{"loud", "fatal", "panic", "dpanic"} {
			_, err := telemetry.NewLogger(io.Discard, level, telemetry.FormatJSON)
			require.ErrorContains(t, err, level)
		}
		_, err := telemetry.NewLogger(io.Discard, "info", "xml")
		require.ErrorContains(t, err, "want json or console")
	})
}

func TestRedis(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	log, err := telemetry.NewLogger(&buf, "debug", telemetry.FormatJSON)
	require.NoError(t, err)
	telemetry.Redis(log).Printf(t.Context(), "dial %s: %d", "redis:6379", 3)
	require.Contains(t, buf.String(), "dial redis:6379: 3")
	require.True(t, json.Valid(buf.Bytes()))
}

func TestTemporal(t *testing.T) {
	t.Parallel()

	lines := func(t *testing.T, write func(sdklog.Logger)) []map[string]any {
		t.Helper()
		var buf bytes.Buffer
		log, err := telemetry.NewLogger(&buf, "debug", telemetry.FormatJSON)
		require.NoError(t, err)
		write(telemetry.Temporal(log))
		var out []map[string]any
		for line := range strings.Lines(buf.String()) {
			var m map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &m))
			out = append(out, m)
		}
		return out
	}

	t.Run("LevelsAndPairs", func(t *testing.T) {
		t.Parallel()
		out := lines(t, func(l sdklog.Logger) {
			l.Debug("d")
			l.Info("i", "queue", "q")
			l.Warn("w", "n", 7)
			l.Error("e", "error", errors.New("boom"))
		})
		require.Len(t, out, 4)
		require.Equal(t, "debug", out[0]["level"])
		require.Equal(t, "q", out[1]["queue"])
		require.InEpsilon(t, 7, out[2]["n"], 0)
		require.Equal(t, "boom", out[3]["error"])
	})

	t.Run("OddPairsAndForeignKeysKeepTheLine", func(t *testing.T) {
		t.Parallel()
		out := lines(t, func(l sdklog.Logger) { l.Info("odd", 42, "v", "last") })
		require.Equal(t, "v", out[0]["42"])
		require.Equal(t, "(no value)", out[0]["last"])
	})

	t.Run("WithAddsToEveryLine", func(t *testing.T) {
		t.Parallel()
		out := lines(t, func(l sdklog.Logger) { sdklog.With(l, "run", "r1").Info("x") })
		require.Equal(t, "r1", out[0]["run"])
	})

	t.Run("NilDropsEverything", func(t *testing.T) {
		t.Parallel()
		require.NotPanics(t, func() { telemetry.Temporal(nil).Error("nobody reads this") })
	})

	t.Run("KeysAsInBelaysOwnLines", func(t *testing.T) {
		t.Parallel()
		out := lines(t, func(l sdklog.Logger) { l.Info("x", "WorkflowID", "w", "Attempt", 2, "ActivityType", "Plan") })
		require.Equal(t, "w", out[0]["workflow"])
		require.InEpsilon(t, 2, out[0]["attempt"], 0)
		require.Equal(t, "Plan", out[0]["activity_type"])
	})
}

// TestQuietFollowsTheLevel holds that a library says more when a person asks for it
// while the program runs, and no more than others at any time.
func TestQuietFollowsTheLevel(t *testing.T) {
	t.Parallel()
	log, level, err := telemetry.NewAdjustable(io.Discard, "info", telemetry.FormatJSON)
	require.NoError(t, err)
	core := telemetry.Quiet(log).Core()
	says := func() []bool {
		return []bool{core.Enabled(zap.DebugLevel), core.Enabled(zap.InfoLevel), core.Enabled(zap.WarnLevel), core.Enabled(zap.ErrorLevel)}
	}
	require.Equal(t, []bool{false, false, true, true}, says())
	level.SetLevel(zap.DebugLevel)
	require.Equal(t, []bool{true, true, true, true}, says())
	level.SetLevel(zap.ErrorLevel)
	require.Equal(t, []bool{false, false, false, true}, says())
}
