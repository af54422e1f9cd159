package ports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// free binds a port and does not listen on it. As long as it is bound, the
// system gives it neither to whoever binds any port nor to whoever connects
// from any port; a listener that names it, and allows addresses to be used
// again as all here do, gets it all the same.
func free(_ context.Context, ip string) (*Port, error) {
	family, addr, err := sockaddr(ip)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket: %w", err)
	}
	number, err := bind(fd, addr)
	if err != nil {
		return nil, errors.Join(err, syscall.Close(fd))
	}
	return &Port{Number: number, release: func() error { return syscall.Close(fd) }}, nil
}

func sockaddr(ip string) (int, syscall.Sockaddr, error) {
	parsed := net.ParseIP(ip)
	if parsed == nil {
		return 0, nil, fmt.Errorf("%q is no IP address", ip)
	}
	if four := parsed.To4(); four != nil {
		return syscall.AF_INET, &syscall.SockaddrInet4{Addr: [4]byte(four)}, nil
	}
	return syscall.AF_INET6, &syscall.SockaddrInet6{Addr: [16]byte(parsed)}, nil
}

func bind(fd int, addr syscall.Sockaddr) (int, error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, fmt.Errorf("allowing the address to be used again: %w", err)
	}
	if err := syscall.Bind(fd, addr); err != nil {
		return 0, fmt.Errorf("binding: %w", err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("reading the port: %w", err)
	}
	switch a := bound.(type) {
	case *syscall.SockaddrInet4:
		return a.Port, nil
	case *syscall.SockaddrInet6:
		return a.Port, nil
	}
	return 0, fmt.Errorf("bound to an unexpected kind of address, %T", bound)
}
