package executor_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"belay.run/internal/executor"
	"belay.run/internal/run"
	"belay.run/internal/task"
	"belay.run/internal/task/types"
)

func TestFallbacks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := executor.Limits{
			Breaker: executor.Breaker{Min: 2},
			Fallbacks: map[string]executor.Fallback{
				"dead": {Output: task.Output{"cached": "yes"}}, "slow": {}, "wrong": {},
			},
		}
		e := open(t, kinds{
			"dead": dead,
			"slow": new(gauge).until(nil),
			"wrong": func(context.Context, task.Origin) (task.Output, error) {
				return nil, task.Failf(run.TriggerExitCode, "404")
			},
		}, limits)
		want := task.Output{"cached": "yes", "fallback": true}
		require.Equal(t, want, succeeds(t, e, to("dead", "a")).Output)
		require.Equal(t, want, succeeds(t, e, to("dead", "a")).Output)
		require.Equal(t, []string{"a"}, e.Status().Open, "its target is no better for it")
		require.Equal(t, want, succeeds(t, e, to("dead", "a")).Output, "where its circuit is open")
		require.Equal(t, task.Output{"fallback": true}, succeeds(t, e, to("slow", "b")).Output, "left out")
		fails(t, e, to("wrong", "c"), run.TriggerExitCode)

		// They change as all limits do.
		limits.Fallbacks = nil
		require.NoError(t, e.SetLimits(limits))
		require.Contains(t, fails(t, e, to("dead", "a"), run.TriggerDependencyUnavailable).Error.Message, "circuit is open")
	})
}

func TestFallbacksInAFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, "fallbacks: {status_sync: skip, http: {output: {status: 203}}}")
	got, err := executor.LoadLimits(path)
	require.NoError(t, err)
	require.Equal(t, map[string]executor.Fallback{"status_sync": {}, "http": {Output: task.Output{"status": 203}}}, got.Fallbacks)
	for text, says := range map[string]string{
		"fallbacks: {http: skp}":                              "line 1: expected skip, or output:",
		"fallbacks: {http: {output: {}, url: x}}":             "line 1: expected skip, or output:",
		"fallbacks: {http: {status: 203}}":                    "line 1: expected skip, or output:",
		"fallbacks: {http: [skip]}":                           "line 1: expected skip, or output:",
		"fallbacks: {htp: skip}":                              `fallbacks: type "htp": not known; did you mean http?`,
		"fallbacks: {http: {output: {stats: 1}}}":             `fallbacks: http: it has no output "stats"; did you mean status?`,
		"fallbacks: {http: {output: {status: ok}}}":           "fallbacks: http: its output status is a number",
		"fallbacks: {http: {output: {status: 1.5}}}":          "fallbacks: http: its output status is a number",
		"fallbacks: {config_sync: {output: {changed: 'no'}}}": "fallbacks: config_sync: its output changed is a bool",
	} {
		write(t, path, text)
		limits, err := executor.LoadLimits(path)
		if err == nil {
			_, err = executor.New(executor.Config{Registry: types.Builtin(types.Tools{}), Limits: limits})
		}
		require.ErrorContains(t, err, says, text)
	}
}
