package config

import "strings"

// secretPrefix begins the variables that hold secrets.
const secretPrefix = "BELAY_SECRET_"

// StepEnviron returns of environ, a list of NAME=value, what steps may see.
func (c *Config) StepEnviron(environ []string) []string {
	var out []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		for _, pattern := range c.StepEnv {
			if matches(pattern, name) {
				out = append(out, entry)
				break
			}
		}
	}
	return out
}

// matches reports whether pattern, a name or the beginning of names and a star,
// means name.
func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
