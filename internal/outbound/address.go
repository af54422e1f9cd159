package outbound

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Address is host:port in the one form that all ways to write it come to: limits,
// circuits and grants go by it.
func Address(host, port string) string {
	host = Host(host)
	if name := strings.TrimSuffix(host, "."); name != "" {
		host = name
	}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		port = strconv.FormatUint(n, 10)
	}
	return net.JoinHostPort(host, port)
}

// Canonical is the Address that a text names; what is no host:port stays as it is.
func Canonical(text string) string {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return text
	}
	return Address(host, port)
}

// Host is a host as it is dialed: a name in lower case and, as net/http does it,
// in ASCII. A full stop at its end stays: it says where names are looked up.
func Host(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	lower := strings.ToLower(host)
	if !strings.ContainsFunc(lower, func(r rune) bool { return r > '~' }) {
		return lower
	}
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		return ascii
	}
	return lower // nobody will find it
}
