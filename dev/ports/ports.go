// Package ports finds free TCP ports, keeps them until they are used, and says
// clearly when a wanted one is not free.
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

// Port is a port that something can listen on.
type Port struct {
	Number int

	release func() error
}

// Release lets go of the port once something listens on it, or nothing will.
// It may be called twice.
func (p *Port) Release() {
	if p == nil || p.release == nil {
		return
	}
	_ = p.release() // closing what was only held cannot fail in a way that matters
	p.release = nil
}

// Take returns port if what can listen on it at ip, and a free port if port is
// 0. A free one is kept from everybody who asks for any port until it is
// released; whoever names its number can listen on it all the while.
func Take(ctx context.Context, what, flag, ip string, port int) (*Port, error) {
	if port == 0 {
		p, err := free(ctx, ip)
		if err != nil {
			return nil, fmt.Errorf("finding a free port for %s at %s: %w", what, ip, err)
		}
		return p, nil
	}
	addr := net.JoinHostPort(ip, strconv.Itoa(port))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, &InUseError{What: what, Addr: addr, Flag: flag}
	case err != nil:
		return nil, fmt.Errorf("%s cannot listen on %s: %w", what, addr, err)
	}
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("looking whether %s is free: %w", addr, err)
	}
	return &Port{Number: port}, nil
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
