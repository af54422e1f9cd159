package metrics_test

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// board is what a dashboard asks for.
type board struct {
	UID    string `json:"uid"`
	Panels []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct {
			X, Y, W, H int
		} `json:"gridPos"`
		Targets []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Type  string `json:"type"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

// TestDashboards holds the dashboards to what there is: each metric that they ask
// for, with each of its labels; and each metric of Belay's is on one of them.
func TestDashboards(t *testing.T) {
	t.Parallel()
	all := everything(t)
	there := series(all)
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	require.NoError(t, err)
	require.Len(t, files, 5)
	shown, uids := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		var b board
		require.NoError(t, json.Unmarshal([]byte(read(t, "deploy/grafana/"+filepath.Base(file))), &b))
		require.Equal(t, "belay-"+strings.TrimSuffix(filepath.Base(file), ".json"), b.UID)
		require.False(t, uids[b.UID])
		uids[b.UID] = true
		for _, v := range b.Templating.List {
			if v.Type == "query" {
				name, _, _ := strings.Cut(strings.TrimPrefix(v.Query, "label_values("), ",")
				require.Contains(t, there, name, file)
			}
		}
		checkPanels(t, &b, there, shown)
	}
	for name := range all {
		if strings.HasPrefix(name, "belay_") {
			require.True(t, shown[name], "no panel shows %s", name)
		}
	}
}

func checkPanels(t *testing.T, b *board, there map[string]map[string]bool, shown map[string]bool) {
	t.Helper()
	ids := map[int]bool{}
	for i, p := range b.Panels {
		require.False(t, ids[p.ID], "the id of panel %q is taken", p.Title)
		ids[p.ID] = true
		for _, o := range b.Panels[:i] {
			apart := p.GridPos.X >= o.GridPos.X+o.GridPos.W || o.GridPos.X >= p.GridPos.X+p.GridPos.W ||
				p.GridPos.Y >= o.GridPos.Y+o.GridPos.H || o.GridPos.Y >= p.GridPos.Y+p.GridPos.H
			require.True(t, apart, "%s: %q lies on %q", b.UID, p.Title, o.Title)
		}
		require.Equal(t, p.Type == "text" || p.Type == "row", len(p.Targets) == 0, p.Title)
		for _, q := range p.Targets {
			for _, name := range asked(t, there, q.Expr, q.LegendFormat) {
				shown[regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")] = true
			}
		}
	}
}

// The documentation of light tasks lists theirs too.
func TestMetricsOfLightTasksAreDocumented(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/light.md")
	for name := range everything(t) {
		if base, isLight := strings.CutPrefix(name, "belay_light_"); isLight {
			require.Contains(t, page, "`"+base+"`")
		}
	}
}
