package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"belay.run/internal/expr"
)

// The file of settings is named by a flag or a variable; it is no setting.
const (
	configFlag = "config"
	configEnv  = "BELAY_CONFIG"
)

// parseFlags returns the given flags by the names of their settings.
func parseFlags(args []string) (map[string]value, error) {
	out := make(map[string]value)
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	take := func(name, flagName string) {
		fs.Func(flagName, "", func(text string) error {
			out[name] = value{text: text, where: "--" + flagName}
			return nil
		})
	}
	take(configFlag, configFlag)
	for _, s := range settings() {
		take(s.Name, s.Flag())
	}
	if err := fs.Parse(args); err != nil {
		return nil, flagError(err)
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: settings are given as --name=value", fs.Arg(0))
	}
	return out, nil
}

// flagError says an unknown flag the way it was written, with the nearest one
// that there is.
func flagError(err error) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if errors.Is(err, flag.ErrHelp) || !unknown {
		return err
	}
	near := expr.Nearest(strings.ReplaceAll(name, "-", "_"), append(settingNames(), configFlag))
	if near != "" {
		return fmt.Errorf("unknown flag --%s: did you mean --%s?", name, flagName(near))
	}
	return fmt.Errorf("unknown flag --%s: see --help", name)
}

// Usage lists the flags, their variables and defaults.
func Usage() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  --%s (%s)\n      A YAML file of settings.\n", configFlag, configEnv)
	for _, s := range settings() {
		fmt.Fprintf(&b, "  --%s (%s)\n      %s\n", s.Flag(), s.Env, s.Help)
		if d := s.defaultText(); d != "" {
			fmt.Fprintf(&b, "      Default: %s\n", d)
		}
	}
	return b.String()
}

func (s Setting) defaultText() string {
	if s.Derived != "" {
		return s.Derived
	}
	return s.Default
}
