package e2e_test

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/internal/run"
)

// metricsOf is a scrape of a worker.
func metricsOf(t *testing.T, w *e2e.Worker) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL()+"/metrics", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

// TestMetricsAreThoseOfTheDocumentation runs something on a worker and finds every
// metric that it serves, Temporal's SDK's among them, in the table of all.
func TestMetricsAreThoseOfTheDocumentation(t *testing.T) {
	t.Parallel()
	env := shared.Get(t)
	w := env.StartWorker(t, t.TempDir(), "--labels", "metrics")
	doc := env.Run(t, on("metrics", `
    steps:
      - {name: a, run: printf 123456}
`)).Wait()
	require.Equal(t, run.Succeeded, doc.Status)
	require.Eventually(t, func() bool {
		text := metricsOf(t, w)
		return strings.Contains(text, "\nbelay_log_bytes_total 6\n") &&
			strings.Contains(text, "\nbelay_queue_wait_seconds_count{queue=\"process\"} 1\n") &&
			strings.Contains(text, "\nbelay_queue_wait_seconds_count{queue=\"host\"} 1\n") &&
			strings.Contains(text, "\nbelay_service_up{service=\"redis\"} 1\n")
	}, e2e.Patience, 50*time.Millisecond)

	page, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	served := regexp.MustCompile(`(?m)^# TYPE ((?:belay|temporal)_\w+) (\w+)$`).FindAllStringSubmatch(metricsOf(t, w), -1)
	var missing []string
	for _, m := range served {
		if row := "\n| `" + m[1] + "` | " + m[2] + " |"; !strings.Contains(string(page), row) {
			missing = append(missing, row)
		}
	}
	require.Empty(t, missing)
	for _, prefix := range []string{"belay_", "temporal_activity_", "temporal_request_"} {
		of := func(m []string) bool { return strings.HasPrefix(m[1], prefix) }
		require.True(t, slices.ContainsFunc(served, of), "nothing of %s…", prefix)
	}
}
