package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"belay.run/internal/secret"
	"belay.run/internal/slots"
)

// Setting is one row of the table of settings. The flag is the name with
// dashes; the key in the file is the name itself.
type Setting struct {
	// Name is the key in the file, e.g. "state_dir".
	Name string
	// Env is the variable of the environment.
	Env string
	// Default is the text that stands in where nothing is given.
	Default string
	// Derived says in words what the default is where it depends on the
	// machine or on another setting.
	Derived string
	// List says that the value is a list of values.
	List bool
	// Help is what the setting does, in a sentence.
	Help string

	set func(*Config, value) error
}

// Flag is the setting's flag without the leading dashes.
func (s Setting) Flag() string { return flagName(s.Name) }

func flagName(setting string) string { return strings.ReplaceAll(setting, "_", "-") }

// defaultStepEnv is what steps see of the worker's environment: what says who,
// where and in which language, how to find programs, and how to get out.
const defaultStepEnv = "PATH,LANG,LANGUAGE,LC_*,TZ,USER,LOGNAME," +
	"HTTP_PROXY,HTTPS_PROXY,NO_PROXY,ALL_PROXY,http_proxy,https_proxy,no_proxy,all_proxy," +
	"SSL_CERT_FILE,SSL_CERT_DIR"

// Settings returns the table of settings: flags, environment, file and
// documentation come from it.
func Settings() []Setting { return settings() }

func settingNames() []string {
	table := settings()
	names := make([]string, len(table))
	for i, s := range table {
		names[i] = s.Name
	}
	return names
}

func settings() []Setting {
	return slices.Concat(generalSettings(), httpSettings(), containerSettings(), lightSettings(), sealSettings(), temporalSettings(), retentionSettings())
}

func generalSettings() []Setting {
	return []Setting{
		{
			Name: "state_dir", Env: "BELAY_STATE_DIR",
			Derived: "/var/lib/belay as root, else $XDG_STATE_HOME/belay or ~/.local/state/belay",
			Help:    "Directory for workspaces, caches and the records of what runs here. One worker at a time.",
			set:     text(func(c *Config) *string { return &c.StateDir }),
		},
		{
			Name: "store", Env: "BELAY_STORE", Derived: "file://<state_dir>/store",
			Help: "Where logs and artifacts are kept: a file:// URL of a directory that every worker and starter reaches, or redis.",
			set:  text(func(c *Config) *string { return &c.Store }),
		},
		{
			Name: "redis_url", Env: "REDIS_URL",
			Help: "Redis, as redis://[user:password@]host:port/db, rediss:// for TLS or unix:// for a socket, redis+cluster:// or redis+sentinel:// for several servers. Empty: none.",
			set:  redisURL(func(c *Config) *string { return &c.RedisURL }),
		},
		{
			Name: "redis_logs_url", Env: "REDIS_LOGS_URL", Derived: "redis_url",
			Help: "Redis for the live tails of logs, where they shall not share a server with the rest.",
			set:  redisURL(func(c *Config) *string { return &c.RedisLogsURL }),
		},
		{
			Name: "labels", Env: "BELAY_LABELS", List: true,
			Help: "Labels of this host, separated by commas: it also takes stages whose runs_on is one of them.",
			set:  setLabels,
		},
		{
			Name: "only_labels", Env: "BELAY_ONLY_LABELS", Default: "false",
			Help: "true keeps this host to stages that ask for one of its labels: it takes none without runs_on.",
			set:  setOnlyLabels,
		},
		{
			Name: "max_processes", Env: "BELAY_MAX_PROCESSES", Derived: "twice the CPUs, at least 4",
			Help: "How many steps run at once on this host. More wait for a slot.",
			set:  count(maxProcesses, func(c *Config) *int { return &c.MaxProcesses }),
		},
		{
			Name: "max_stages", Env: "BELAY_MAX_STAGES", Derived: "8 times max_processes",
			Help: "How many stages may have a workspace on this host at once. More wait for a host, this one or another.",
			set:  count(maxStages, func(c *Config) *int { return &c.MaxStages }),
		},
		{
			Name: "tenant_runs", Env: "BELAY_TENANT_RUNS", List: true,
			Help: "How many runs a tenant may have at once, on all hosts together, separated by commas, as TENANT=NUMBER, * for each that is not named. More wait. Give all workers the same. Empty: no bound.",
			set:  quotas(func(c *Config) *slots.Quotas { return &c.TenantRuns }),
		},
		{
			Name: "tenant_steps", Env: "BELAY_TENANT_STEPS", List: true,
			Help: "How many steps of a tenant run at once on this host, in the same form. More wait, while others take the slots of max_processes. Empty: no bound.",
			set:  quotas(func(c *Config) *slots.Quotas { return &c.TenantSteps }),
		},
		{
			Name: "drain_timeout", Env: "BELAY_DRAIN_TIMEOUT", Default: "10m",
			Help: "How long the stages on this host may go on after SIGTERM before they are cancelled. 0 cancels them at once.",
			set:  setDrainTimeout,
		},
		{
			Name: "janitor", Env: "BELAY_JANITOR", Default: "15s",
			Help: "How often the janitor looks for what closed runs left behind, one for all workers of a namespace; off: this worker does not ask for it.",
			set:  setJanitor,
		},
		{
			Name: "step_env", Env: "BELAY_STEP_ENV", Default: defaultStepEnv, List: true,
			Help: "Variables of the worker that steps see, separated by commas; NAME_* takes all that begin with NAME_.",
			set:  setStepEnv,
		},
		{
			Name: "secrets", Env: "BELAY_SECRETS", Default: "env", List: true,
			Help: "Where secrets come from, asked in this order: env (variables BELAY_SECRET_<NAME>), dir:/path (one file each), exec:/command (prints the one it is given the name of).",
			set:  setSecrets,
		},
		{
			Name: "credentials", Env: "BELAY_CREDENTIALS", List: true,
			Help: "Who issues credentials to steps, separated by commas, as NAME=/command arguments: it is called with issue or revoke.",
			set:  setCredentials,
		},
		{
			Name: "port_range", Env: "BELAY_PORT_RANGE", Default: "20000-29999",
			Help: "The ports of this machine that steps may hold.",
			set:  setPortRange,
		},
		{
			Name: "port_dir", Env: "BELAY_PORT_DIR", Derived: "belay-ports in the system's directory for temporary files",
			Help: "Directory that all workers of this machine share, so that no two steps get one port.",
			set:  text(func(c *Config) *string { return &c.PortDir }),
		},
		{
			Name: "log_level", Env: "BELAY_LOG_LEVEL", Default: "info",
			Help: "What the worker logs: debug, info, warn or error.",
			set:  oneOf(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error"),
		},
		{
			Name: "log_format", Env: "BELAY_LOG_FORMAT", Default: "json",
			Help: "json (one object a line) or console (plain text).",
			set:  oneOf(func(c *Config) *string { return &c.LogFormat }, "json", "console"),
		},
	}
}

func text(field func(*Config) *string) func(*Config, value) error {
	return func(c *Config, v value) error {
		*field(c) = v.text
		return nil
	}
}

func oneOf(field func(*Config) *string, allowed ...string) func(*Config, value) error {
	return func(c *Config, v value) error {
		if !slices.Contains(allowed, v.text) {
			return fmt.Errorf("%q: want %s", v.text, strings.Join(allowed, ", "))
		}
		*field(c) = v.text
		return nil
	}
}

func redisURL(field func(*Config) *string) func(*Config, value) error {
	return func(c *Config, v value) error {
		if v.text != "" {
			if err := checkRedisURL(v.text); err != nil {
				return err
			}
		}
		*field(c) = v.text
		return nil
	}
}

var labelPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func setLabels(c *Config, v value) error {
	for _, label := range v.items() {
		if !labelPattern.MatchString(label) {
			return fmt.Errorf("label %q: want letters, digits, dots, dashes and underscores, at most 63", label)
		}
		if !slices.Contains(c.Labels, label) {
			c.Labels = append(c.Labels, label)
		}
	}
	return nil
}

func setOnlyLabels(c *Config, v value) error {
	switch v.text {
	case "true":
		c.OnlyLabels = true
	case "false":
		c.OnlyLabels = false
	default:
		return fmt.Errorf("%q: want true or false", v.text)
	}
	if c.OnlyLabels && len(c.Labels) == 0 {
		return errors.New("a host without labels would take no stage at all: give it labels")
	}
	return nil
}

// The most processes are far beyond what a machine runs, and below what a
// host's queue hands out at once.
const (
	maxProcesses = 2000
	maxStages    = 8 * maxProcesses
)

// count sets a number from 1 to most; nothing leaves it to be derived.
func count(most int, field func(*Config) *int) func(*Config, value) error {
	return func(c *Config, v value) error {
		if v.text == "" {
			return nil
		}
		n, err := strconv.Atoi(v.text)
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("%q: want a number from 1 to %d", v.text, most)
		}
		*field(c) = n
		return nil
	}
}

func setDrainTimeout(c *Config, v value) error {
	d, err := time.ParseDuration(v.text)
	if v.text == "0" {
		d, err = 0, nil
	}
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no duration: want one like 90s, 10m or 1h30m", v.text)
	}
	c.DrainTimeout = d
	return nil
}

// janitorOff keeps a worker from asking for the janitor.
const janitorOff = "off"

func setJanitor(c *Config, v value) error {
	if v.text == janitorOff {
		c.Janitor = 0
		return nil
	}
	d, err := time.ParseDuration(v.text)
	if err != nil || d < time.Second || d > time.Hour {
		return fmt.Errorf("%q: want a duration from 1s to 1h, or %s", v.text, janitorOff)
	}
	c.Janitor = d
	return nil
}

var envPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*\*?$`)

func setStepEnv(c *Config, v value) error {
	for _, name := range v.items() {
		switch {
		case !envPattern.MatchString(name):
			return fmt.Errorf("%q: want the name of a variable, or the beginning of names and a star, as LC_*", name)
		case matches(name, secretPrefix) || strings.HasPrefix(name, secretPrefix):
			return fmt.Errorf("%q would hand secrets to every step: list them under secrets in the steps that need them", name)
		}
		c.StepEnv = append(c.StepEnv, name)
	}
	return nil
}

func setSecrets(c *Config, v value) error {
	c.Secrets = v.items()
	_, err := secret.Open(c.Secrets...)
	return err
}
