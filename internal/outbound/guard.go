package outbound

import (
	"fmt"
	"net/netip"
	"syscall"
)

// RefusedError says that an address is not to be talked to: neither the target's
// fault nor anything that passes by itself.
type RefusedError struct {
	Addr netip.Addr
	// Kind is what the address is, such as "a loopback address".
	Kind string
}

// Error says what was refused, and what allows it.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is %s, which this worker does not talk to unless its configuration allows it", e.Addr, e.Kind)
}

// special are the addresses behind which the worker's own machine and its cloud
// keep what a task is not to reach. Private networks are not among them: what
// tasks look after is mostly there.
var special = []struct { // read only
	prefix netip.Prefix
	kind   string
}{
	{netip.MustParsePrefix("169.254.169.254/32"), "a cloud's metadata service"},
	{netip.MustParsePrefix("169.254.170.0/24"), "a cloud's metadata service"},
	{netip.MustParsePrefix("100.100.100.200/32"), "a cloud's metadata service"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud's metadata service"},
	{netip.MustParsePrefix("192.0.0.192/32"), "a cloud's metadata service"},
	{netip.MustParsePrefix("fd00:ec2::/32"), "a cloud's metadata service"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "a cloud's metadata service"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified address"},
	{netip.MustParsePrefix("::/128"), "an unspecified address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a translated address of unknown meaning"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo address"},
}

// carriers are networks whose addresses hold one of IPv4, and where in them it
// begins. To talk to such an address is to talk to the one that it holds.
var carriers = []struct { // read only
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12},
	{netip.MustParsePrefix("::/96"), 12},
	{netip.MustParsePrefix("2002::/16"), 2},
}

// Guard decides which addresses are talked to. The zero Guard refuses loopback,
// link-local, unspecified, multicast and reserved addresses and the metadata
// services of clouds, in all forms in which IPv6 writes them, and lets all
// others pass.
type Guard struct {
	// Allow are networks that are talked to all the same.
	Allow []netip.Prefix
}

// Check returns a [*RefusedError] for an address that is not to be talked to.
func (g Guard) Check(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("")
	if g.allows(addr) {
		return nil
	}
	for _, s := range special {
		if s.prefix.Contains(addr) {
			return &RefusedError{Addr: addr, Kind: s.kind}
		}
	}
	for _, c := range carriers {
		if !c.prefix.Contains(addr) {
			continue
		}
		b := addr.As16()
		held := netip.AddrFrom4([4]byte(b[c.at : c.at+4]))
		if g.Check(held) != nil {
			return &RefusedError{Addr: addr, Kind: "another form of " + held.String()}
		}
	}
	return nil
}

func (g Guard) allows(addr netip.Addr) bool {
	for _, p := range g.Allow {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Control is for a [net.Dialer]. It sees the address that is about to be
// connected to, after names were resolved, so that a name cannot mean one
// address when it is checked and another when it is used.
func (g Guard) Control(network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("dialing %s %s: %w", network, address, err)
	}
	return g.Check(to.Addr())
}

// checkLiteral checks a host that is an address, as it may be written in a URL:
// a proxy would be asked for it as it stands.
func (g Guard) checkLiteral(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		return g.Check(addr)
	}
	if host == "localhost" {
		return g.Check(netip.IPv6Loopback())
	}
	return nil
}
