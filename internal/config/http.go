package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"belay.run/internal/run"
)

// HTTPToken says which secret is the bearer token of a tenant.
type HTTPToken struct {
	// Tenant is whose requests they are that bear it; [AnyTenant]: whose they
	// say they are.
	Tenant string
	// Secret is the name of the secret.
	Secret string
}

// AnyTenant is the tenant of a token that speaks for all.
const AnyTenant = "*"

func httpSettings() []Setting {
	return []Setting{
		{
			Name: "http_address", Env: "BELAY_HTTP_ADDRESS", Default: "127.0.0.1:9464",
			Help: "Address of /api, /healthz, /readyz and /metrics, as host:port; off listens nowhere.",
			set:  setHTTPAddress,
		},
		{
			Name: "http_tokens", Env: "BELAY_HTTP_TOKENS", List: true,
			Help: "Who may use /api and /metrics, separated by commas, as TENANT=SECRET: the secret of that name is the bearer token of the tenant, of all tenants where it is *. Needed where http_address is not of this machine alone.",
			set:  setHTTPTokens,
		},
		{
			Name: "http_api", Env: "BELAY_HTTP_API", Default: "on",
			Help: "off leaves out /api: health and metrics need no token then.",
			set:  setHTTPAPI,
		},
		{
			Name: "http_tls_cert", Env: "BELAY_HTTP_TLS_CERT",
			Help: "File with the certificate, and its chain, with which http_address speaks TLS. It is read again when it was renewed. Empty: no TLS.",
			set:  text(func(c *Config) *string { return &c.HTTPTLS.Cert }),
		},
		{
			Name: "http_tls_key", Env: "BELAY_HTTP_TLS_KEY",
			Help: "File with the key of that certificate.",
			set:  text(func(c *Config) *string { return &c.HTTPTLS.Key }),
		},
	}
}

func setHTTPAddress(c *Config, v value) error {
	if v.text != HTTPOff {
		_, port, err := net.SplitHostPort(v.text)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return fmt.Errorf("%q: want host:port such as 127.0.0.1:9464, or %s", v.text, HTTPOff)
		}
	}
	c.HTTPAddress = v.text
	return nil
}

func setHTTPAPI(c *Config, v value) error {
	switch v.text {
	case "on", "off":
		c.HTTPAPIOff = v.text == "off"
		return nil
	}
	return fmt.Errorf("%q: want on or off", v.text)
}

var secretPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,126}$`)

func setHTTPTokens(c *Config, v value) error {
	for _, item := range v.items() {
		tenant, name, _ := strings.Cut(item, "=")
		// What stands there may be a token by mistake, and is not shown.
		switch {
		case tenant != AnyTenant && !run.ValidScope(tenant):
			return fmt.Errorf("want TENANT=SECRET, with a tenant of %s, or *", run.ScopeWords)
		case !secretPattern.MatchString(name):
			return errors.New("want TENANT=SECRET, where SECRET is the name of a secret, not the token itself")
		}
		c.HTTPTokens = append(c.HTTPTokens, HTTPToken{Tenant: tenant, Secret: name})
	}
	return nil
}
