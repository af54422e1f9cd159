package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/config"
	"belay.run/internal/secret"
)

// environment makes a lookup of pairs of names and values.
func environment(pairs ...string) config.Lookup {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// file writes a file of settings and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "worker.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLoadDefaults(t *testing.T) {
	t.Parallel()
	c, err := config.Load(nil, environment("HOME", "/home/ci"))
	require.NoError(t, err)
	if os.Geteuid() == 0 {
		require.Equal(t, "/var/lib/belay", c.StateDir)
	} else {
		require.Equal(t, "/home/ci/.local/state/belay", c.StateDir)
	}
	require.Equal(t, "file://"+c.StateDir+"/store", c.Store)
	require.Empty(t, c.RedisURL)
	require.Empty(t, c.Labels)
	require.GreaterOrEqual(t, c.MaxProcesses, 4)
	require.Equal(t, 8*c.MaxProcesses, c.MaxStages)
	require.Equal(t, 10*time.Minute, c.DrainTimeout)
	require.Equal(t, 15*time.Second, c.Janitor)
	require.Equal(t, "127.0.0.1:9464", c.HTTPAddress)
	require.Contains(t, c.StepEnv, "PATH")
	require.Equal(t, []string{"env"}, c.Secrets)
	require.Equal(t, "info", c.LogLevel)
	require.Equal(t, "json", c.LogFormat)
	const day = 24 * time.Hour
	require.Equal(t, config.Retention{Logs: 30 * day, Artifacts: 30 * day, Batches: 30 * day, Records: 7 * day, Audit: 90 * day}, c.Retention)
}

func TestLoadRetention(t *testing.T) {
	t.Parallel()
	c, err := config.Load([]string{"--retention-logs=0", "--retention-artifacts=48h", "--retention-batches=1d", "--retention-records=365d"}, environment("HOME", "/home/ci"))
	require.NoError(t, err)
	const day = 24 * time.Hour
	require.Equal(t, config.Retention{Artifacts: 2 * day, Batches: day, Records: 365 * day, Audit: 90 * day}, c.Retention)
	for _, bad := range []string{"logs=23h", "logs=-30d", "logs=30", "logs=d", "logs=1.5d", "logs=65535d", "records=6d", "audit=never"} {
		_, err := config.Load([]string{"--retention-" + bad}, environment("HOME", "/home/ci"))
		require.ErrorContains(t, err, "at the least", bad)
	}
}

func TestLoadPrecedence(t *testing.T) {
	t.Parallel()
	path := file(t, "drain_timeout: 1m\nlog_level: debug\nlog_format: console\nmax_processes: 7\n")
	env := environment("BELAY_CONFIG", path, "BELAY_DRAIN_TIMEOUT", "2m", "BELAY_LOG_LEVEL", "warn",
		"BELAY_MAX_PROCESSES", "", "BELAY_STATE_DIR", "/s")
	c, err := config.Load([]string{"--drain-timeout=3m"}, env)
	require.NoError(t, err)
	require.Equal(t, 3*time.Minute, c.DrainTimeout, "a flag wins over the environment")
	require.Equal(t, "warn", c.LogLevel, "the environment wins over the file")
	require.Equal(t, "console", c.LogFormat, "the file wins over the default")
	require.Equal(t, 7, c.MaxProcesses, "an empty variable counts as not set")

	other := file(t, "log_format: json\n")
	c, err = config.Load([]string{"--config", other}, env)
	require.NoError(t, err)
	require.Equal(t, "json", c.LogFormat, "--config wins over BELAY_CONFIG")
}

func TestLoadValues(t *testing.T) {
	t.Parallel()

	t.Run("FileOfEveryShape", func(t *testing.T) {
		t.Parallel()
		path := file(t, `# a comment
state_dir: /var/lib/ci one
store: "redis"
redis_url: redis://:secret@redis:6379/1
labels: [linux, gpu, linux]
max_processes: 12
drain_timeout: 0
http_address: off
step_env:
  - PATH
  - LC_*
secrets: [env, "dir:/run/secrets", exec:/usr/bin/secret get]
`)
		c, err := config.Load([]string{"--config=" + path}, environment())
		require.NoError(t, err)
		require.Equal(t, "/var/lib/ci one", c.StateDir)
		require.Equal(t, "redis", c.Store)
		require.Equal(t, "redis://:secret@redis:6379/1", c.RedisURL)
		require.Equal(t, c.RedisURL, c.RedisLogsURL, "logs go to the same Redis by default")
		require.Equal(t, []string{"linux", "gpu"}, c.Labels)
		require.Equal(t, 12, c.MaxProcesses)
		require.Zero(t, c.DrainTimeout)
		require.Equal(t, config.HTTPOff, c.HTTPAddress)
		require.Equal(t, []string{"PATH", "LC_*"}, c.StepEnv)
		require.Equal(t, []string{"env", "dir:/run/secrets", "exec:/usr/bin/secret get"}, c.Secrets)
	})

	t.Run("TokensOfTenants", func(t *testing.T) {
		t.Parallel()
		c, err := config.Load([]string{"--http-tokens=shop=SHOP_TOKEN, shop=SHOP_NEXT, *=OPS", "--http-api=off"}, environment())
		require.NoError(t, err)
		require.Equal(t, []config.HTTPToken{{Tenant: "shop", Secret: "SHOP_TOKEN"}, {Tenant: "shop", Secret: "SHOP_NEXT"}, {Tenant: config.AnyTenant, Secret: "OPS"}}, c.HTTPTokens)
		require.True(t, c.HTTPAPIOff)
	})

	t.Run("SecretsOfLightTasks", func(t *testing.T) {
		t.Parallel()
		c, err := config.Load(nil, environment("BELAY_LIGHT_SECRETS",
			"shop=TOKEN, *=CA, ops=*, shop=HOOK@-, shop=API@API.example.com, shop=API@*.example.com:443, a=B@10.0.0.7:8080, a=B@[::1]:80, a=B@::1, a=B@[::1]"))
		require.NoError(t, err)
		require.Equal(t, []secret.Grant{
			{Tenant: "shop", Secret: "TOKEN"},
			{Tenant: "*", Secret: "CA"},
			{Tenant: "ops", Secret: "*"},
			{Tenant: "shop", Secret: "HOOK", Host: "-"},
			{Tenant: "shop", Secret: "API", Host: "api.example.com"},
			{Tenant: "shop", Secret: "API", Host: "*.example.com", Port: "443"},
			{Tenant: "a", Secret: "B", Host: "10.0.0.7", Port: "8080"},
			{Tenant: "a", Secret: "B", Host: "::1", Port: "80"},
			{Tenant: "a", Secret: "B", Host: "::1"},
			{Tenant: "a", Secret: "B", Host: "::1"},
		}, c.LightSecrets)
		for _, bad := range []string{
			"TOKEN", "shop", "shop=", "=TOKEN", "a/b=TOKEN", "shop=to ken", "shop=T@", "shop=T@a:0", "shop=T@a:x", "shop=T@:80", "shop=T@a/b", "shop=T@*",
			"shop=T@*.", "shop=T@a.*.b", "shop=T@https://a", "shop=T@-:80", "shop=T@a:65536", "shop=T@fe80::1%eth0", "shop=hunter2-is-secret@x y", "shop=T@a b",
		} {
			_, err := config.Load(nil, environment("BELAY_LIGHT_SECRETS", bad))
			require.ErrorContains(t, err, "light_secrets", bad)
			require.NotContains(t, err.Error(), "x y")
		}
	})

	t.Run("QuotasOfTenants", func(t *testing.T) {
		t.Parallel()
		c, err := config.Load([]string{"--tenant-runs=shop=200, *=50"}, environment("BELAY_TENANT_STEPS", "shop=4"))
		require.NoError(t, err)
		require.Equal(t, []int{200, 50}, []int{c.TenantRuns.Of("shop"), c.TenantRuns.Of("other")})
		require.Equal(t, []int{4, 0}, []int{c.TenantSteps.Of("shop"), c.TenantSteps.Of("other")})
		for _, bad := range []string{"shop", "shop=", "shop=0", "shop=-1", "shop=many", "a/b=1", "=1", "shop=1,shop=2", "shop=100001"} {
			_, err := config.Load(nil, environment("BELAY_TENANT_RUNS", bad))
			require.ErrorContains(t, err, "tenant_runs", bad)
		}
	})

	t.Run("ListsByCommas", func(t *testing.T) {
		t.Parallel()
		c, err := config.Load([]string{"--labels", " a, b,,c "}, environment("BELAY_STATE_DIR", "/s"))
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c"}, c.Labels)
	})

	t.Run("StoreOfAnOddStateDirIsStillAURL", func(t *testing.T) {
		t.Parallel()
		c, err := config.Load([]string{"--state-dir", "/a b/50%?#"}, environment())
		require.NoError(t, err)
		require.Equal(t, "file:///a%20b/50%25%3F%23/store", c.Store)
	})

	t.Run("RelativeStateDirIsMadeAbsolute", func(t *testing.T) {
		t.Parallel()
		c, err := config.Load([]string{"--state-dir", "state"}, environment())
		require.NoError(t, err)
		require.True(t, filepath.IsAbs(c.StateDir))
	})

	t.Run("EmptyFileSetsNothing", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"", "# nothing\n", "---\n"} {
			_, err := config.Load([]string{"--config", file(t, text)}, environment("BELAY_STATE_DIR", "/s"))
			require.NoError(t, err, "%q", text)
		}
	})
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string
		env  []string
		file string
		want []string
	}{
		{name: "UnknownFlag", args: []string{"--drain-timout=1m"}, want: []string{"unknown flag --drain-timout", "--drain-timeout"}},
		{name: "UnknownFlagFarFromAll", args: []string{"--zzzzzzzzzzzz=1m"}, want: []string{"unknown flag --zzzzzzzzzzzz", "--help"}},
		{name: "Argument", args: []string{"start"}, want: []string{`unexpected argument "start"`}},
		{name: "FlagWithoutValue", args: []string{"--labels"}, want: []string{"labels"}},
		{name: "NoDuration", args: []string{"--drain-timeout=5 minutes"}, want: []string{"--drain-timeout", `"5 minutes"`, "10m"}},
		{name: "NegativeDuration", env: []string{"BELAY_DRAIN_TIMEOUT", "-1s"}, want: []string{"BELAY_DRAIN_TIMEOUT", `"-1s"`}},
		{name: "NoProcesses", env: []string{"BELAY_MAX_PROCESSES", "0"}, want: []string{"BELAY_MAX_PROCESSES", "from 1 to"}},
		{name: "NoStages", args: []string{"--max-stages=0"}, want: []string{"--max-stages", "from 1 to"}},
		{name: "FarTooManyProcesses", env: []string{"BELAY_MAX_PROCESSES", "99999999999999999999"}, want: []string{"from 1 to"}},
		{name: "BadLabel", env: []string{"BELAY_LABELS", "ok,not ok"}, want: []string{`"not ok"`}},
		{name: "NoPort", env: []string{"BELAY_HTTP_ADDRESS", "localhost"}, want: []string{`"localhost"`, "host:port"}},
		{name: "PortOutOfRange", env: []string{"BELAY_HTTP_ADDRESS", ":70000"}, want: []string{"host:port"}},
		{name: "ATokenInPlaceOfItsName", env: []string{"BELAY_HTTP_TOKENS", "shop=d3b0/7384=="}, want: []string{"BELAY_HTTP_TOKENS", "not the token itself"}},
		{name: "ATokenOfNobody", env: []string{"BELAY_HTTP_TOKENS", "SHOP_TOKEN"}, want: []string{"BELAY_HTTP_TOKENS", "TENANT=SECRET"}},
		{name: "AnAPIThatIsHalfOff", env: []string{"BELAY_HTTP_API", "no"}, want: []string{`"no"`, "on or off"}},
		{name: "AllOfTheEnvironment", env: []string{"BELAY_STEP_ENV", "*"}, want: []string{`"*"`}},
		{name: "SecretsForEveryStep", env: []string{"BELAY_STEP_ENV", "PATH,BELAY_*"}, want: []string{`"BELAY_*"`, "secrets"}},
		{name: "OneSecretForEveryStep", env: []string{"BELAY_STEP_ENV", "BELAY_SECRET_X"}, want: []string{"secrets"}},
		{name: "SecretProvider", env: []string{"BELAY_SECRETS", "vault:x"}, want: []string{"BELAY_SECRETS", "vault:x"}},
		{name: "LogLevel", env: []string{"BELAY_LOG_LEVEL", "loud"}, want: []string{`"loud"`, "debug, info, warn, error"}},
		{name: "LogFormat", env: []string{"BELAY_LOG_FORMAT", "xml"}, want: []string{`"xml"`, "json, console"}},
		{name: "RedisScheme", env: []string{"REDIS_URL", "http://:hunter2@redis"}, want: []string{"REDIS_URL", `"http"`, "redis://"}},
		{name: "RedisCluster", env: []string{"REDIS_URL", "redis+cluster://a,b/2"}, want: []string{"only database 0"}},
		{name: "RedisNoURL", env: []string{"REDIS_URL", "redis://:hunter2%@redis"}, want: []string{"not a URL", "percent-encoded"}},
		{name: "RedisDatabase", env: []string{"REDIS_LOGS_URL", "redis://:hunter2@redis/x"}, want: []string{"REDIS_LOGS_URL"}},

		{name: "JanitorTooOften", args: []string{"--janitor", "10ms"}, want: []string{"janitor", "10ms", "1s to 1h, or off"}},
		{name: "UnknownKey", file: "labels: a\ndrain_timout: 1m\n", want: []string{"worker.yaml:2:1", `"drain_timout"`, "drain_timeout"}},
		{name: "UnknownKeyFarFromAll", file: "zzzzzzzzzzzzz: 1m\n", want: []string{"worker.yaml:1:1", `"zzzzzzzzzzzzz"`}},
		{name: "FlagStyleKey", file: "drain-timeout: 1m\n", want: []string{"did you mean drain_timeout"}},
		{name: "BadValueInFile", file: "labels: a\ndrain_timeout: soon\n", want: []string{"worker.yaml:2:16", `"soon"`}},
		{name: "MapForValue", file: "labels:\n  a: b\n", want: []string{"worker.yaml:2", "labels"}},
		{name: "OnlyLabelsWithout", file: "only_labels: true\n", want: []string{"worker.yaml:1:14", "give it labels"}},
		{name: "OnlyLabelsWhat", file: "labels: a\nonly_labels: maybe\n", want: []string{"worker.yaml:2:14", `"maybe"`, "true or false"}},
		{name: "ListForValue", file: "store: [a, b]\n", want: []string{"worker.yaml:1", "found a list"}},
		{name: "ListForNumber", file: "max_processes: [1]\n", want: []string{"worker.yaml:1", "found a list"}},
		{name: "MissingValue", file: "labels:\nlog_level: info\n", want: []string{"worker.yaml:1", "missing"}},
		{name: "Alias", file: "labels: &a [x]\nsecrets: *a\n", want: []string{"worker.yaml:2:10", "found an alias"}},
		{name: "NoMapping", file: "- labels\n", want: []string{"worker.yaml:1:1", "name: value"}},
		{name: "TwoDocuments", file: "labels: a\n---\nlabels: b\n", want: []string{"one document"}},
		{name: "BrokenYAML", file: "labels: [a\n", want: []string{"worker.yaml"}},
		{name: "TooLarge", file: "# " + strings.Repeat("x", 1<<20) + "\n", want: []string{"larger than"}},
		{name: "AllAtOnce", args: []string{"--log-level=x"}, env: []string{"BELAY_LOG_FORMAT", "y"}, file: "max_processes: z\n", want: []string{`"x"`, `"y"`, `"z"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			args := tc.args
			if tc.file != "" {
				args = append(args, "--config", file(t, tc.file))
			}
			_, err := config.Load(args, environment(append(tc.env, "BELAY_STATE_DIR", "/s")...))
			require.Error(t, err)
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), "hunter2", "a password must not be shown")
		})
	}

	t.Run("MissingFile", func(t *testing.T) {
		t.Parallel()
		_, err := config.Load([]string{"--config=/no/such/file"}, environment("BELAY_STATE_DIR", "/s"))
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorContains(t, err, "/no/such/file")
	})

	t.Run("SetTwiceInTheFile", func(t *testing.T) {
		t.Parallel()
		_, err := config.Load([]string{"--config", file(t, "labels: a\nlabels: b\n")}, environment("BELAY_STATE_DIR", "/s"))
		require.ErrorContains(t, err, "labels")
	})
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"-h", "--help"} {
		_, err := config.Load([]string{arg}, environment())
		require.ErrorIs(t, err, flag.ErrHelp)
	}
	for _, s := range config.Settings() {
		require.Contains(t, config.Usage(), "--"+s.Flag()+" ")
		require.Contains(t, config.Usage(), s.Env)
	}
}

func TestStepEnviron(t *testing.T) {
	t.Parallel()
	c, err := config.Load([]string{"--step-env=PATH,LC_*,EMPTY"}, environment("BELAY_STATE_DIR", "/s"))
	require.NoError(t, err)
	got := c.StepEnviron([]string{
		"PATH=/bin:/usr/bin", "PATHS=no", "LC_ALL=C", "LC_=x", "LANG=no", "EMPTY=", "BELAY_SECRET_TOKEN=hunter2", "A=PATH=",
	})
	require.Equal(t, []string{"PATH=/bin:/usr/bin", "LC_ALL=C", "LC_=x", "EMPTY="}, got)
}

// update rewrites the table in docs/configuration.md.
var update = flag.Bool("update", false, "write the generated table into the documentation")

func TestDocumentation(t *testing.T) {
	t.Parallel()
	const path = "../../docs/configuration.md"
	const begin, end = "<!-- settings: generated by internal/config -->\n", "<!-- settings end -->"
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(raw), begin)
	require.True(t, ok, "%s marks where the table is", path)
	table, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+config.Markdown()+end+after), 0o644))
		return
	}
	require.Equal(t, config.Markdown(), table, "write it with: go test ./internal/config -run TestDocumentation -update")
}

func TestEveryVariableIsItsOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range config.Settings() {
		require.False(t, seen[s.Env], s.Env)
		require.False(t, seen[s.Name], s.Name)
		seen[s.Env], seen[s.Name] = true, true
		require.NotEmpty(t, s.Help)
		require.False(t, strings.HasPrefix(s.Env, "BELAY_SECRET_"), "that would be a secret")
	}
}
