package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"belay.run/internal/expr"
)

// configFlag names the file; it is a flag and no setting.
const configFlag = "config"

// parseFlags returns the given flags by the names of their settings.
func parseFlags(args []string) (map[string]value, error) {
	out := make(map[string]value)
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	names := []string{configFlag}
	take := func(name, flagName string) {
		fs.Func(flagName, "", func(text string) error {
			out[name] = value{text: text, where: "--" + flagName}
			return nil
		})
	}
	take(configFlag, configFlag)
	for _, s := range settings() {
		names = append(names, s.Flag())
		take(s.Name, s.Flag())
	}
	if err := fs.Parse(args); err != nil {
		return nil, flagError(err, names)
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: settings are given as --name=value", fs.Arg(0))
	}
	return out, nil
}

// flagError says an unknown flag the way it was written, with the nearest one
// that there is.
func flagError(err error, names []string) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	switch {
	case errors.Is(err, flag.ErrHelp) || !unknown:
		return err
	case expr.Nearest(name, names) != "":
		return fmt.Errorf("unknown flag --%s: did you mean --%s?", name, expr.Nearest(name, names))
	}
	return fmt.Errorf("unknown flag --%s: see --help", name)
}

// Usage prints the flags, their variables and defaults.
func Usage(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "  --%s FILE\t%s\tA YAML file of settings.\n", configFlag, "BELAY_CONFIG")
	for _, s := range settings() {
		help := s.Help
		if d := s.defaultText(); d != "" {
			help += " Default: " + d + "."
		}
		fmt.Fprintf(tw, "  --%s\t%s\t%s\n", s.Flag(), s.Env, help)
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("writing the help: %w", err)
	}
	return nil
}

func (s Setting) defaultText() string {
	if s.Derived != "" {
		return s.Derived
	}
	return s.Default
}
