//go:build !linux

package ports

import (
	"context"
	"net"
)

// free finds a port that is free now. These systems hand out ports in order, so
// it stays so for a while.
func free(ctx context.Context, ip string) (*Port, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return nil, err
	}
	return &Port{Number: l.Addr().(*net.TCPAddr).Port}, l.Close()
}
