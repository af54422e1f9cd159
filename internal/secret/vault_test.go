package secret_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/secret"
)

// fixed are secrets by their names.
type fixed map[string]string

func (f fixed) Get(_ context.Context, name string) (secret.Value, error) {
	text, ok := f[name]
	if !ok {
		return secret.Value{}, secret.ErrNotFound
	}
	return secret.NewValue(name, text), nil
}

func (fixed) Where(string) string { return "a test" }

func TestVaultGrants(t *testing.T) {
	t.Parallel()
	anywhere, below := secret.Grant{Tenant: "shop", Secret: "T"}, secret.Grant{Tenant: "shop", Secret: "T", Host: "*.example.com"}
	there := secret.Grant{Tenant: "shop", Secret: "T", Host: "api.example.com"}
	port := secret.Grant{Tenant: "shop", Secret: "T", Host: "api.example.com", Port: "443"}
	nowhere := secret.Grant{Tenant: "shop", Secret: "T", Host: secret.Nowhere}
	for _, c := range []struct {
		grant      secret.Grant
		tenant, to string
		name       string
		ok         bool
	}{
		{grant: anywhere, tenant: "shop", name: "T", to: "evil.example:443", ok: true},
		{grant: anywhere, tenant: "shop", name: "T", to: "", ok: true},
		{grant: anywhere, tenant: "shop", name: "T2", to: "a:1"},
		{grant: anywhere, tenant: "bank", name: "T", to: "a:1"},
		{grant: anywhere, tenant: "", name: "T", to: "a:1"},
		{grant: secret.Grant{Tenant: secret.Any, Secret: "T"}, tenant: "bank", name: "T", to: "a:1", ok: true},
		{grant: secret.Grant{Tenant: secret.Any, Secret: "T"}, tenant: "bank", name: "U", to: "a:1"},
		{grant: secret.Grant{Tenant: "shop", Secret: secret.Any}, tenant: "shop", name: "U", to: "a:1", ok: true},
		{grant: secret.Grant{Tenant: "shop", Secret: secret.Any}, tenant: "bank", name: "U", to: "a:1"},
		{grant: there, tenant: "shop", name: "T", to: "api.example.com:443", ok: true},
		{grant: there, tenant: "shop", name: "T", to: "api.example.com:80", ok: true},
		{grant: there, tenant: "shop", name: "T", to: secret.Nowhere, ok: true},
		{grant: there, tenant: "shop", name: "T", to: ""},
		{grant: there, tenant: "bank", name: "T", to: "api.example.com:443"},
		{grant: there, tenant: "shop", name: "T", to: "example.com:443"},
		{grant: there, tenant: "shop", name: "T", to: "api.example.com.evil.example:443"},
		{grant: there, tenant: "shop", name: "T", to: "x.api.example.com:443"},
		{grant: there, tenant: "shop", name: "T", to: "api.example.com.:443"},
		{grant: there, tenant: "shop", name: "T", to: "api.example.com"},
		{grant: port, tenant: "shop", name: "T", to: "api.example.com:443", ok: true},
		{grant: port, tenant: "shop", name: "T", to: "api.example.com:80"},
		{grant: port, tenant: "shop", name: "T", to: "api.example.com:4433"},
		{grant: below, tenant: "shop", name: "T", to: "a.example.com:443", ok: true},
		{grant: below, tenant: "shop", name: "T", to: "b.a.example.com:443", ok: true},
		{grant: below, tenant: "shop", name: "T", to: "example.com:443"},
		{grant: below, tenant: "shop", name: "T", to: ".example.com:443"},
		{grant: below, tenant: "shop", name: "T", to: "evilexample.com:443"},
		{grant: below, tenant: "shop", name: "T", to: "evil.com/.example.com:443"},
		{grant: below, tenant: "shop", name: "T", to: "evil.com\uff0f.example.com:443"},
		{grant: secret.Grant{Tenant: "shop", Secret: "T", Host: "::1", Port: "9"}, tenant: "shop", name: "T", to: "[::1]:9", ok: true},
		{grant: nowhere, tenant: "shop", name: "T", to: secret.Nowhere, ok: true},
		{grant: nowhere, tenant: "shop", name: "T", to: "-:443"},
	} {
		v := secret.NewVault(fixed{"T": "value-of-t", "U": "value-of-u"}, secret.Grant{Tenant: "other", Secret: "OTHER"}, c.grant)
		use := secret.Use{Tenant: c.tenant, Name: c.name, To: c.to}
		value, err := v.Get(t.Context(), use)
		if c.ok {
			require.NoError(t, err, "%s for %+v", c.grant, use)
			require.Equal(t, "value-of-"+map[string]string{"T": "t", "U": "u"}[c.name], value.Reveal())
			continue
		}
		var refused *secret.RefusedError
		require.ErrorAs(t, err, &refused, "%s for %+v", c.grant, use)
		require.Empty(t, value.Reveal())
		require.ErrorContains(t, err, c.tenant)
		require.ErrorContains(t, err, "light_secrets")
		require.ErrorContains(t, err, "secret "+c.name)
	}
}

func TestVaultSaysWhatWouldLetATask(t *testing.T) {
	t.Parallel()
	v := secret.NewVault(fixed{}, secret.Grant{Tenant: "shop", Secret: "T", Host: "api.example.com"})
	require.ErrorContains(t, v.Check(secret.Use{Tenant: "bank", Name: "T", To: "a.example:443"}), "bank=T")
	require.ErrorContains(t, v.Check(secret.Use{Tenant: "shop", Name: "T", To: "a.example:443"}), "shop=T@a.example:443")
	require.NoError(t, v.Granted("shop", "T"))
	require.Error(t, v.Granted("bank", "T"))
	var refused *secret.RefusedError
	for _, name := range []string{"", "../T", "T\n"} {
		err := secret.NewVault(fixed{}, secret.Grant{Tenant: "*", Secret: "*"}).Granted("shop", name)
		require.ErrorContains(t, err, "a name starts with")
		require.NotErrorAs(t, err, &refused)
	}
}

// A step may use what it lists, and nothing else, whatever is granted.
func TestVaultOpensForSteps(t *testing.T) {
	t.Parallel()
	v := secret.NewVault(fixed{"T": "value", "U": "value"}, secret.Grant{Tenant: secret.Any, Secret: "U"})
	_, err := v.Get(t.Context(), secret.Use{Tenant: "shop", Listed: []string{"T"}, Name: "T", To: "a:1"})
	require.NoError(t, err)
	for _, listed := range [][]string{{"T"}, {}} {
		_, err = v.Get(t.Context(), secret.Use{Tenant: "shop", Listed: listed, Name: "U", To: "a:1"})
		require.ErrorContains(t, err, "does not list the secret U")
	}
}

func TestGrantsAreWrittenAsTheyAreRead(t *testing.T) {
	t.Parallel()
	for want, g := range map[string]secret.Grant{
		"*=*":                    {Tenant: "*", Secret: "*"},
		"shop=T@-":               {Tenant: "shop", Secret: "T", Host: "-"},
		"shop=T@*.example.com":   {Tenant: "shop", Secret: "T", Host: "*.example.com"},
		"shop=T@[::1]:80":        {Tenant: "shop", Secret: "T", Host: "::1", Port: "80"},
		"shop=T@example.com:443": {Tenant: "shop", Secret: "T", Host: "example.com", Port: "443"},
	} {
		require.Equal(t, want, g.String())
	}
}
