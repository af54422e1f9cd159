package outbound_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/outbound"
)

func TestOneAddressHasOneForm(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"shop.example:443":                "shop.example:443",
		"Shop.Example:443":                "shop.example:443",
		"shop.example.:0443":              "shop.example:443",
		"MÜNCHEN.example:80":              "xn--mnchen-3ya.example:80",
		"xn--mnchen-3ya.example.:80":      "xn--mnchen-3ya.example:80",
		"shop。example:80":                 "shop.example:80", // as net/http reads it too
		"10.0.0.7:80":                     "10.0.0.7:80",
		"[::ffff:10.0.0.7]:80":            "10.0.0.7:80",
		"[2001:DB8:0:0:0:0:0:1]:80":       "[2001:db8::1]:80",
		"a_b.example:80":                  "a_b.example:80",
		"no port":                         "no port",
		".:80":                            ".:80",
		"other.example:443":               "other.example:443",
		"sub.shop.example:443":            "sub.shop.example:443",
		"shop.example.evil.example.:8443": "shop.example.evil.example:8443",
	} {
		require.Equal(t, want, outbound.Canonical(text), text)
	}
	require.Equal(t, "shop.example.", outbound.Host("SHOP.example."), "it is dialed as it is written")
}
