// Package deploy checks the files of the repository that put Belay into
// operation: they are read by the programs of others, which are not here.
package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	"go.temporal.io/server/common/dynamicconfig"

	"belay.run/internal/config"
	"belay.run/workflows"
)

const root = "../.."

// once are the services that do something and end; the others stay up.
var once = []string{"temporal-schema", "temporal-setup"}

// project loads the compose file as docker compose does, with this environment.
func project(t *testing.T, env ...string) *types.Project {
	t.Helper()
	dir, err := filepath.Abs(root)
	require.NoError(t, err)
	options, err := cli.NewProjectOptions([]string{filepath.Join(dir, "docker-compose.yml")},
		cli.WithWorkingDirectory(dir), cli.WithEnv(env), cli.WithProfiles([]string{"*"}))
	require.NoError(t, err)
	p, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	return p
}

// exampleEnv reads the example of .env.
func exampleEnv(t *testing.T) map[string]string {
	t.Helper()
	env := make(map[string]string)
	for line := range strings.Lines(read(t, "deploy/compose/example.env")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			env[name] = value
		}
	}
	return env
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

func TestServices(t *testing.T) {
	t.Parallel()
	p := project(t)
	require.ElementsMatch(t, []string{
		"postgres", "temporal-schema", "temporal", "temporal-setup", "temporal-ui",
		"redis", "worker-1", "worker-2", "belay", "prometheus", "grafana",
	}, p.ServiceNames())

	for name, s := range p.Services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Regexp(t, `^(\w+/)?[\w-]+:(v?\d+\.\d+\.\d+|\d+\.\d+)(-\w+)?$|^belay:local$`, s.Image, "a pinned tag")
			require.Contains(t, s.SecurityOpt, "no-new-privileges:true")
			require.True(t, s.ReadOnly)
			if name == "belay" {
				return // runs while somebody types
			}
			require.NotNil(t, s.Logging, "logs are bounded")
			require.Equal(t, "10m", s.Logging.Options["max-size"])
			if slices.Contains(once, name) {
				require.Equal(t, "on-failure:5", s.Restart)
				return
			}
			require.Equal(t, "unless-stopped", s.Restart)
			require.NotNil(t, s.HealthCheck)
			require.NotEmpty(t, s.HealthCheck.Test)
			require.NotNil(t, s.HealthCheck.Interval)
			require.NotNil(t, s.HealthCheck.StartPeriod)
		})
	}
}

func TestStartOrder(t *testing.T) {
	t.Parallel()
	got := make(map[string]map[string]string)
	for name, s := range project(t).Services {
		if len(s.DependsOn) > 0 {
			got[name] = make(map[string]string)
		}
		for on, d := range s.DependsOn {
			require.True(t, d.Required)
			got[name][on] = d.Condition
		}
	}
	ready := map[string]string{"temporal-setup": types.ServiceConditionCompletedSuccessfully, "redis": types.ServiceConditionHealthy}
	require.Equal(t, map[string]map[string]string{
		"temporal-schema": {"postgres": types.ServiceConditionHealthy},
		"temporal":        {"postgres": types.ServiceConditionHealthy, "temporal-schema": types.ServiceConditionCompletedSuccessfully},
		"temporal-setup":  {"temporal": types.ServiceConditionHealthy},
		"temporal-ui":     {"temporal": types.ServiceConditionHealthy},
		"worker-1":        ready,
		"worker-2":        ready,
		"belay":           ready,
		"grafana":         {"prometheus": types.ServiceConditionHealthy},
	}, got)
}

func TestPortsAreOnLoopback(t *testing.T) {
	t.Parallel()
	published := make(map[string]string)
	for name, s := range project(t).Services {
		for _, port := range s.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, name)
			published[name] = port.Published
		}
	}
	require.Equal(t, map[string]string{"temporal": "7233", "temporal-ui": "8233", "prometheus": "9090", "grafana": "3000"}, published)
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	p := project(t)
	volumes := func(name string) map[string]string {
		out := make(map[string]string)
		for _, v := range p.Services[name].Volumes {
			if v.Type == types.VolumeTypeVolume {
				out[v.Target] = v.Source
			}
		}
		return out
	}
	for _, name := range []string{"worker-1", "worker-2"} {
		s := p.Services[name]
		settings := settings(t, s)
		require.Equal(t, "file:///var/lib/belay-store", settings.Store)
		// After the drain come finally steps (5 min) and releases (2 min).
		require.NotNil(t, s.StopGracePeriod)
		require.Greater(t, time.Duration(*s.StopGracePeriod), settings.DrainTimeout+7*time.Minute)
		require.Equal(t, map[string]string{"/var/lib/belay": name, "/var/lib/belay-store": "store"}, volumes(name))
		require.Equal(t, []string{"ALL"}, s.CapDrop)
		require.NotNil(t, s.Build)
		require.Positive(t, s.PidsLimit)
	}
	require.Equal(t, "store", volumes("belay")["/var/lib/belay-store"])
	require.Equal(t, settings(t, p.Services["worker-1"]).Store, settings(t, p.Services["belay"]).Store)
	for name := range p.Volumes {
		require.Contains(t, []string{"grafana", "postgres", "prometheus", "redis", "store", "worker-1", "worker-2"}, name)
	}
}

// settings reads a service's environment as Belay does.
func settings(t *testing.T, s types.ServiceConfig) *config.Config {
	t.Helper()
	c, err := config.FromEnvironment(func(name string) (string, bool) {
		switch value, ok := s.Environment[name]; {
		case ok && value != nil:
			return *value, true
		case name == "BELAY_STATE_DIR":
			return "/var/lib/belay", true // as the image sets it
		}
		return "", false
	})
	require.NoError(t, err)
	return c
}

func TestPasswordsComeFromTheEnvironment(t *testing.T) {
	t.Parallel()
	p := project(t, "POSTGRES_PASSWORD=elephant", "REDIS_PASSWORD=cart")
	env := func(service, name string) string {
		value := p.Services[service].Environment[name]
		require.NotNil(t, value, "%s of %s", name, service)
		return *value
	}
	require.Equal(t, "elephant", env("postgres", "POSTGRES_PASSWORD"))
	require.Equal(t, "elephant", env("temporal-schema", "SQL_PASSWORD"))
	require.Equal(t, "elephant", env("temporal", "POSTGRES_PWD"))
	require.Equal(t, "cart", env("redis", "REDIS_PASSWORD"))
	require.Equal(t, "redis://:cart@redis:6379/0", env("worker-1", "REDIS_URL"))
	require.Equal(t, "redis://:cart@redis:6379/0", env("belay", "REDIS_URL"))
}

func TestExampleEnvironment(t *testing.T) {
	t.Parallel()
	env := exampleEnv(t)
	variables := make(map[string]string)
	for _, m := range regexp.MustCompile(`\$\{(\w+):-([^}]*)}`).FindAllStringSubmatch(read(t, "docker-compose.yml"), -1) {
		if before, seen := variables[m[1]]; seen {
			require.Equal(t, before, m[2], "one default for %s", m[1])
		}
		variables[m[1]] = m[2]
	}
	require.Equal(t, variables, env, "example.env shows each variable with its default")
}

func TestVersionsAreThoseThatWereTested(t *testing.T) {
	t.Parallel()
	mod := read(t, "dev/go.mod")
	version := func(module string) string {
		m := regexp.MustCompile(regexp.QuoteMeta(module) + ` v(\S+)`).FindStringSubmatch(mod)
		require.NotNil(t, m, module)
		return m[1]
	}
	env := exampleEnv(t)
	require.Equal(t, version("go.temporal.io/server"), env["TEMPORAL_VERSION"])
	require.Equal(t, version("github.com/temporalio/ui-server/v2"), env["TEMPORAL_UI_VERSION"])
}

func TestSearchAttributes(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range regexp.MustCompile(`--name (\w+) --type (\w+)`).FindAllStringSubmatch(read(t, "deploy/compose/temporal-setup.sh"), -1) {
		require.Equal(t, "Keyword", m[2])
		got = append(got, m[1])
	}
	require.ElementsMatch(t, []string{
		workflows.AttrTenant, workflows.AttrProject, workflows.AttrPipeline, workflows.AttrStatus, workflows.AttrDedupKey,
	}, got)
}

func TestDynamicConfig(t *testing.T) {
	t.Parallel()
	loaded := dynamicconfig.LoadYamlFile([]byte(read(t, "deploy/compose/dynamicconfig.yaml")))
	require.Empty(t, loaded.Errors)
	require.Empty(t, loaded.Warnings, "the server knows every key")
	require.Len(t, slices.Collect(maps.Keys(loaded.Map)), 4)
}
