package deploy

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// mounted is the file of the repository that a service sees under a path.
func mounted(t *testing.T, s types.ServiceConfig, path string) string {
	t.Helper()
	dir, err := filepath.Abs(root)
	require.NoError(t, err)
	for _, v := range s.Volumes {
		rest, in := strings.CutPrefix(path, v.Target)
		if v.Type == types.VolumeTypeBind && in {
			require.True(t, v.ReadOnly)
			name, err := filepath.Rel(dir, filepath.Join(v.Source, rest))
			require.NoError(t, err)
			return name
		}
	}
	require.Fail(t, "not mounted", path)
	return ""
}

// load reads a YAML file of the repository.
func load(t *testing.T, name string, into any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(read(t, name)), into))
}

// TestObserve follows the profile from the workers to the dashboards.
func TestObserve(t *testing.T) {
	t.Parallel()
	p := project(t)
	prometheus, grafana := p.Services["prometheus"], p.Services["grafana"]
	for _, s := range []types.ServiceConfig{prometheus, grafana} {
		require.Equal(t, []string{"observe"}, s.Profiles, "who does not ask for it does not get it")
		require.Equal(t, []string{"ALL"}, s.CapDrop)
	}

	var config struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName       string `yaml:"job_name"`
			StaticConfigs []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	require.Contains(t, prometheus.Command, "--config.file=/etc/prometheus/prometheus.yml")
	load(t, mounted(t, prometheus, "/etc/prometheus/prometheus.yml"), &config)
	require.Equal(t, "belay", config.ScrapeConfigs[0].JobName, "as the rules have it")
	var workers []string
	for name, s := range p.Services {
		if s.Build != nil && strings.HasPrefix(name, "worker-") {
			settings := settings(t, s)
			host, port, _ := strings.Cut(settings.HTTPAddress, ":")
			require.Equal(t, "0.0.0.0", host)
			require.True(t, settings.HTTPAPIOff, "metrics without a token, and no tasks")
			workers = append(workers, name+":"+port)
		}
	}
	require.Len(t, workers, 2)
	require.ElementsMatch(t, workers, config.ScrapeConfigs[0].StaticConfigs[0].Targets)
	for _, file := range config.RuleFiles {
		require.Contains(t, read(t, mounted(t, prometheus, file)), "alert: BelayLeakedResources")
	}

	var sources struct {
		Datasources []struct {
			Type      string `yaml:"type"`
			URL       string `yaml:"url"`
			IsDefault bool   `yaml:"isDefault"`
		} `yaml:"datasources"`
	}
	load(t, mounted(t, grafana, "/etc/grafana/provisioning/datasources/belay.yaml"), &sources)
	require.Len(t, sources.Datasources, 1)
	require.Equal(t, "prometheus", sources.Datasources[0].Type)
	require.Equal(t, "http://prometheus:9090", sources.Datasources[0].URL)
	require.True(t, sources.Datasources[0].IsDefault)

	var boards struct {
		Providers []struct {
			Options struct {
				Path string `yaml:"path"`
			} `yaml:"options"`
		} `yaml:"providers"`
	}
	load(t, mounted(t, grafana, "/etc/grafana/provisioning/dashboards/belay.yaml"), &boards)
	require.Equal(t, "deploy/grafana", mounted(t, grafana, boards.Providers[0].Options.Path))
	home := grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	require.NotNil(t, home)
	require.Contains(t, read(t, mounted(t, grafana, *home)), `"belay-overview"`)
}
