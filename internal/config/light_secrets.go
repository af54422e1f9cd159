package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"belay.run/internal/run"
	"belay.run/internal/secret"
)

var hostPattern = regexp.MustCompile(`^(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

func setLightSecrets(c *Config, v value) error {
	for _, item := range v.items() {
		g, err := readGrant(item)
		if err != nil {
			return err
		}
		c.LightSecrets = append(c.LightSecrets, g)
	}
	return nil
}

// readGrant reads TENANT=SECRET[@HOST[:PORT]].
func readGrant(text string) (secret.Grant, error) {
	tenant, rest, _ := strings.Cut(text, "=")
	name, to, bound := strings.Cut(rest, "@")
	g := secret.Grant{Tenant: tenant, Secret: name}
	// What stands there may be a secret itself by mistake, and is not shown.
	switch {
	case tenant != secret.Any && !run.ValidScope(tenant):
		return g, fmt.Errorf("want TENANT=SECRET or TENANT=SECRET@HOST, with a tenant of %s, or *", run.ScopeWords)
	case name != secret.Any && !secretPattern.MatchString(name):
		return g, errors.New("want TENANT=SECRET or TENANT=SECRET@HOST, where SECRET is the name of a secret, or *")
	case !bound:
		return g, nil
	}
	var ok bool
	if g.Host, g.Port, ok = readGrantHost(to); !ok {
		return g, errors.New("want TENANT=SECRET@HOST, with a host such as api.example.com, *.example.com or 10.0.0.7, and with :PORT where it may be that one only; or - for nowhere")
	}
	return g, nil
}

func readGrantHost(text string) (host, port string, ok bool) {
	if text == secret.Nowhere {
		return text, "", true
	}
	host = text
	if h, p, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return "", "", false
		}
		host, port = h, strconv.FormatUint(n, 10)
	} else if strings.HasPrefix(text, "[") {
		host = strings.TrimSuffix(text[1:], "]")
	}
	host = strings.ToLower(host)
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String(), port, addr.Zone() == ""
	}
	return host, port, hostPattern.MatchString(host)
}
