package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// PortRange is a range of ports, both ends included.
type PortRange struct {
	Low, High int
}

// Ports below this one are the system's own.
const (
	minPort = 1024
	maxPort = 65535
)

func setPortRange(c *Config, v value) error {
	low, high, ok := strings.Cut(v.text, "-")
	r := PortRange{}
	var err1, err2 error
	r.Low, err1 = strconv.Atoi(strings.TrimSpace(low))
	r.High, err2 = strconv.Atoi(strings.TrimSpace(high))
	if !ok || err1 != nil || err2 != nil || r.Low < minPort || r.High > maxPort || r.Low > r.High {
		return fmt.Errorf("%q: want two ports from %d to %d, as 20000-29999", v.text, minPort, maxPort)
	}
	c.PortRange = r
	return nil
}

var providerPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,62}$`)

func setCredentials(c *Config, v value) error {
	for _, item := range v.items() {
		name, line, _ := strings.Cut(item, "=")
		command := strings.Fields(line)
		switch {
		case !providerPattern.MatchString(name):
			return fmt.Errorf("%q: want NAME=/command, with a name of letters, digits, _ and -", item)
		case len(command) == 0 || !filepath.IsAbs(command[0]):
			return fmt.Errorf("%q: want the absolute path of a command behind %s=", item, name)
		case c.Credentials[name] != nil:
			return fmt.Errorf("the provider %s stands twice", name)
		}
		if c.Credentials == nil {
			c.Credentials = map[string][]string{}
		}
		c.Credentials[name] = command
	}
	return nil
}
