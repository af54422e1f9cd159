package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// GRPC are the credentials of a client of gRPC, which makes a new connection
// whenever the old one ends: base with what the files hold then.
func (s *Source) GRPC(base *tls.Config) credentials.TransportCredentials {
	return &renewed{source: s, base: base.Clone()}
}

type renewed struct {
	source *Source
	base   *tls.Config
}

// ClientHandshake is that of a connection.
func (r *renewed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.source.Client(r.base)).ClientHandshake(ctx, authority, conn)
}

// ServerHandshake is there for the interface.
func (*renewed) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these are the credentials of a client")
}

// Info describes the protocol.
func (r *renewed) Info() credentials.ProtocolInfo { return credentials.NewTLS(r.base).Info() }

// Clone returns a copy.
func (r *renewed) Clone() credentials.TransportCredentials { return r.source.GRPC(r.base) }

// OverrideServerName changes the name that is checked.
//
// Deprecated: it is there for the interface.
func (r *renewed) OverrideServerName(name string) error {
	r.base.ServerName = name
	return nil
}
