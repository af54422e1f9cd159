// Package config holds the settings of Belay's programs: one table of what can
// be set, read from flags, the environment and a file, and the connections to
// Temporal and Redis that they describe.
package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"belay.run/internal/certs"
	"belay.run/internal/seal"
	"belay.run/internal/secret"
	"belay.run/internal/slots"
)

// Config holds every setting. The table in settings.go says what each means.
type Config struct {
	StateDir     string
	Store        string
	RedisURL     string
	RedisLogsURL string
	Labels       []string
	OnlyLabels   bool
	MaxProcesses int
	MaxStages    int
	TenantRuns   slots.Quotas
	TenantSteps  slots.Quotas
	DrainTimeout time.Duration
	Janitor      time.Duration // 0: this worker asks for none
	HTTPAddress  string
	HTTPTokens   []HTTPToken
	HTTPAPIOff   bool // no /api
	StepEnv      []string
	Secrets      []string
	// PayloadKeys seal what goes to Temporal: the first is written with, all are
	// read with.
	PayloadKeys []seal.Named
	// TemporalAPIKeyFile holds the API key for Temporal; empty: that of the
	// environment, if any.
	TemporalAPIKeyFile string
	// HTTPTLS is what the HTTP address speaks TLS with; empty: it does not.
	HTTPTLS certs.Files
	// CodecTokens are the secrets of who may decrypt payloads by HTTP, and
	// CodecOrigins the web pages that may ask for it.
	CodecTokens  []string
	CodecOrigins []string
	Credentials  map[string][]string // command lines by the name of the provider
	PortRange    PortRange
	PortDir      string
	// ContainerEngine is a socket, or ContainerEngineOff.
	ContainerEngine     string
	ContainerMounts     []string
	ContainerPrivileged bool
	RegistryConfig      string
	// LightLimits and LightRoutes are files; empty: the defaults. LightAllow are
	// addresses that light tasks may reach beside those that all may.
	LightLimits string
	LightRoutes string
	LightAllow  []netip.Prefix
	// LightSecrets are the secrets that light tasks may use which are no steps.
	LightSecrets []secret.Grant
	// LightFiles is the folder below which light tasks may touch files; empty: none.
	LightFiles string
	Retention  Retention
	LogLevel   string
	LogFormat  string
}

// HTTPOff as HTTPAddress keeps the worker from listening at all.
const HTTPOff = "off"

// Lookup finds a variable of the environment, as [os.LookupEnv] does.
type Lookup func(name string) (string, bool)

// Load reads the settings: a flag wins over the environment, that over the
// file, that over the default. The file is the one that --config or
// BELAY_CONFIG names; there is none by default. It returns all errors at once,
// or [flag.ErrHelp] where help was asked for.
func Load(args []string, lookup Lookup) (*Config, error) {
	flags, err := parseFlags(args)
	if err != nil {
		return nil, err
	}
	values, errs := fileValues(configPath(flags, lookup))
	maps.Copy(values, environment(lookup))
	maps.Copy(values, flags)

	c := new(Config)
	for _, s := range settings() {
		v, given := values[s.Name]
		if !given {
			v = value{text: s.Default, where: "default"}
		}
		if err := s.apply(c, v); err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", v.where, s.Name, err))
		}
	}
	errs = append(errs, c.derive(lookup))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

func (s Setting) apply(c *Config, v value) error {
	if v.list != nil && !s.List {
		return errors.New("one value is wanted, found a list")
	}
	return s.set(c, v)
}

// FromEnvironment is [Load] without flags, for programs that have flags of
// their own.
func FromEnvironment(lookup Lookup) (*Config, error) {
	return Load(nil, lookup)
}

// derive fills in the defaults that depend on the machine, the user or another
// setting.
func (c *Config) derive(lookup Lookup) error {
	if c.StateDir == "" {
		dir, err := defaultStateDir(os.Geteuid(), lookup)
		if err != nil {
			return err
		}
		c.StateDir = dir
	}
	dir, err := filepath.Abs(c.StateDir)
	if err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	c.StateDir = dir
	c.deriveContainers(lookup)
	if (c.HTTPTLS.Cert == "") != (c.HTTPTLS.Key == "") {
		return errors.New("http_tls_cert and http_tls_key belong together")
	}
	if c.Store == "" {
		c.Store = (&url.URL{Scheme: "file", Path: filepath.Join(dir, "store")}).String()
	}
	if c.RedisLogsURL == "" {
		c.RedisLogsURL = c.RedisURL
	}
	if c.PortDir == "" {
		c.PortDir = filepath.Join(os.TempDir(), "belay-ports")
	}
	if c.MaxProcesses == 0 {
		c.MaxProcesses = max(4, 2*runtime.GOMAXPROCS(0))
	}
	if c.MaxStages == 0 {
		c.MaxStages = stagesPerProcess * c.MaxProcesses
	}
	return nil
}

// stagesPerProcess is how many stages a host takes for each process that it may
// run: most stages wait for something else than a process now and then.
const stagesPerProcess = 8

func defaultStateDir(uid int, lookup Lookup) (string, error) {
	if uid == 0 {
		return "/var/lib/belay", nil
	}
	if dir, ok := lookup("XDG_STATE_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "belay"), nil
	}
	if home, ok := lookup("HOME"); ok && home != "" {
		return filepath.Join(home, ".local", "state", "belay"), nil
	}
	return "", errors.New("state_dir: this user has no HOME to keep it in: set BELAY_STATE_DIR or --state-dir")
}

// value is the text of a setting, or the list of its texts, and where it stands.
type value struct {
	text  string
	list  []string
	where string
}

// items is the value as a list: a file may write a sequence, and every source
// may separate the items by commas.
func (v value) items() []string {
	list := v.list
	if list == nil {
		list = strings.Split(v.text, ",")
	}
	var out []string
	for _, item := range list {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// environment reads the variables of the table. An empty one counts as not set,
// since many ways to start a program cannot leave a variable out.
func environment(lookup Lookup) map[string]value {
	out := make(map[string]value)
	for _, s := range settings() {
		if text, ok := lookup(s.Env); ok && text != "" {
			out[s.Name] = value{text: text, where: s.Env}
		}
	}
	return out
}

func configPath(flags map[string]value, lookup Lookup) string {
	if v, ok := flags[configFlag]; ok {
		return v.text
	}
	path, _ := lookup(configEnv)
	return path
}
