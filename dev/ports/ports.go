// Package ports finds free TCP ports and says clearly when a wanted one is not.
package ports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// InUseError says that a port that was asked for belongs to somebody else.
type InUseError struct {
	// What wants the port, Addr is its address, Flag chooses another one.
	What, Addr, Flag string
}

// Error names the port and what to do.
func (e *InUseError) Error() string {
	msg := fmt.Sprintf("%s cannot listen on %s: the port is in use", e.What, e.Addr)
	if e.Flag != "" {
		msg += fmt.Sprintf("; end what listens there, or choose another port with %s (0 takes a free one)", e.Flag)
	}
	return msg
}

// Take returns port if what can listen on it at ip, and a free port if port is
// 0. It only looks: the port is bound later, by whoever needs it.
func Take(ctx context.Context, what, flag, ip string, port int) (int, error) {
	if port == 0 {
		return Free(ctx, ip)
	}
	addr := net.JoinHostPort(ip, strconv.Itoa(port))
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return 0, &InUseError{What: what, Addr: addr, Flag: flag}
	case err != nil:
		return 0, fmt.Errorf("%s cannot listen on %s: %w", what, addr, err)
	}
	return port, l.Close()
}

// Free finds a port that nothing listens on at ip and that the system will not
// give to anybody else who asks for any free port within the next minute.
func Free(ctx context.Context, ip string) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return 0, fmt.Errorf("finding a free port at %s: %w", ip, err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, errors.Join(park(ctx, l), l.Close())
}

// park leaves a connection of l's port in TIME_WAIT, closed from the listening
// side. Until that has passed the system gives the port to nobody who binds
// port 0, while it can still be bound by its number.
func park(ctx context.Context, l net.Listener) error {
	addr := l.Addr().(*net.TCPAddr)
	if addr.IP.IsUnspecified() {
		addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: addr.Port}
	}
	var d net.Dialer
	out, err := d.DialContext(ctx, "tcp", addr.String())
	if err != nil {
		return fmt.Errorf("keeping port %d free: %w", addr.Port, err)
	}
	in, err := l.Accept()
	if err != nil {
		return errors.Join(fmt.Errorf("keeping port %d free: %w", addr.Port, err), out.Close())
	}
	return errors.Join(in.Close(), out.Close())
}

// Reachable is the address at which something that listens on ip can be called
// from this machine.
func Reachable(ip string) string {
	if parsed := net.ParseIP(ip); parsed != nil && parsed.IsUnspecified() {
		return "127.0.0.1"
	}
	return ip
}

// Join is the address, host:port, at which a port of ip can be called from this
// machine.
func Join(ip string, port int) string {
	return net.JoinHostPort(Reachable(ip), strconv.Itoa(port))
}
