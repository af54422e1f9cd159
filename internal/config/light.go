package config

import (
	"fmt"
	"net/netip"
	"strings"
)

func lightSettings() []Setting {
	return []Setting{
		{
			Name: "light_limits", Env: "BELAY_LIGHT_LIMITS",
			Help: "File with the limits of light tasks: how many at once, how fast, for whom. It is read again when it changes and on SIGHUP. Empty: the defaults.",
			set:  text(func(c *Config) *string { return &c.LightLimits }),
		},
		{
			Name: "light_routes", Env: "BELAY_LIGHT_ROUTES",
			Help: "File with the rules that send built-in steps to the light tasks or to the host of their stage. Empty: the defaults.",
			set:  text(func(c *Config) *string { return &c.LightRoutes }),
		},
		{
			Name: "light_allow", Env: "BELAY_LIGHT_ALLOW", List: true,
			Help: "Addresses that light tasks may reach although they are of this machine, of its link or of a cloud's metadata, separated by commas, as 127.0.0.0/8 or ::1.",
			set:  setLightAllow,
		},
		{
			Name: "light_secrets", Env: "BELAY_LIGHT_SECRETS", List: true,
			Help: "Secrets that light tasks of batches and requests may use, separated by commas, as TENANT=SECRET, * for all tenants or all secrets; TENANT=SECRET@HOST or @HOST:PORT sends it there only, @*.example.com below that name, @- nowhere. Empty: none. Steps may use those that they list.",
			set:  setLightSecrets,
		},
		{
			Name: "light_files", Env: "BELAY_LIGHT_FILES",
			Help: "Folder of this machine below which light tasks may read and write files, / for all that the worker's user may. Empty: none.",
			set:  text(func(c *Config) *string { return &c.LightFiles }),
		},
	}
}

func setLightAllow(c *Config, v value) error {
	for _, item := range v.items() {
		prefix, err := parsePrefix(item)
		if err != nil {
			return fmt.Errorf("%q: want an address or a prefix such as 127.0.0.0/8", item)
		}
		c.LightAllow = append(c.LightAllow, prefix)
	}
	return nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		return p.Masked(), err
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return a.Prefix(a.BitLen())
}
