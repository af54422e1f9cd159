package metrics_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/executor"
	"belay.run/internal/metrics"
	"belay.run/internal/task"
)

// TestDashboard holds the dashboard of light tasks to what there is: each metric
// that it asks for, with each of its labels, and every metric of light tasks.
func TestDashboard(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	m.Light().Ended(&task.Result{Type: "http", Status: task.Succeeded})
	m.WatchExecutor(func() executor.Status { return executor.Status{} })
	there := map[string]map[string]bool{}
	sample := regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? `)
	label := regexp.MustCompile(`([a-z_]+)="`)
	for _, line := range sample.FindAllStringSubmatch(scrape(t, m), -1) {
		if there[line[1]] == nil {
			there[line[1]] = map[string]bool{"instance": true} // Prometheus adds it
		}
		for _, l := range label.FindAllStringSubmatch(line[2], -1) {
			there[line[1]][l[1]] = true
		}
	}

	text, err := os.ReadFile("../../deploy/grafana/light.json")
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			Targets []struct {
				Expr         string `json:"expr"`
				LegendFormat string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
	}
	require.NoError(t, json.Unmarshal(text, &board))
	metric := regexp.MustCompile(`\b(?:belay_light|go)_[a-z_]+`)
	used := regexp.MustCompile(`\bby \(([^)]*)\)|\{\{(\w+)\}\}|[{,]([a-z_]+)=`)
	asked, ids := map[string]bool{}, map[int]bool{}
	for _, p := range board.Panels {
		require.False(t, ids[p.ID], "the id of panel %q is taken", p.Title)
		ids[p.ID] = true
		for _, q := range p.Targets {
			names := metric.FindAllString(q.Expr, -1)
			require.NotEmpty(t, names, q.Expr)
			for _, name := range names {
				require.Contains(t, there, name, "panel %q", p.Title)
				asked[strings.TrimSuffix(name, "_bucket")] = true
				for _, m := range used.FindAllStringSubmatch(q.Expr+" "+q.LegendFormat, -1) {
					for l := range strings.SplitSeq(m[1]+m[2]+m[3], ", ") {
						require.Contains(t, there[name], l, "panel %q asks %s for a label", p.Title, name)
					}
				}
			}
		}
	}
	for name := range there {
		if base, isLight := strings.CutPrefix(name, "belay_light_"); isLight {
			base = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(base, "")
			require.True(t, asked["belay_light_"+base], "no panel shows belay_light_%s", base)
		}
	}
	// The documentation lists them too.
	page, err := os.ReadFile("../../docs/light.md")
	require.NoError(t, err)
	for name := range asked {
		if base, isLight := strings.CutPrefix(name, "belay_light_"); isLight {
			require.Contains(t, string(page), "`"+base+"`")
		}
	}
}
