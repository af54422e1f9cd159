package types

import (
	"context"
	"errors"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"belay.run/internal/version"
)

// grpcLongest bounds the answer, which is a number.
const grpcLongest = 4 << 10

// probeGRPC asks by the health protocol of gRPC.
func probeGRPC(ctx context.Context, p *probe) error {
	// The error of the last dial says more than that of the call, which knows only
	// that there is no connection. grpc dials in a goroutine of its own.
	dialed := make(chan error, 1)
	conn, err := grpc.NewClient("passthrough:///"+dialAddress(p.url, p.kind.port),
		grpc.WithTransportCredentials(p.grpcCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := p.tools.Net.DialContext(ctx, "tcp", addr)
			select {
			case dialed <- err:
			default: // of the first dial, which is the only one
			}
			return c, err
		}),
		grpc.WithUserAgent("belay/"+version.String()),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(grpcLongest)))
	if err != nil {
		return failure(ctx, p.String(), err, p.hidden()...)
	}
	defer func() { _ = conn.Close() }() // it was not closed before
	call := ctx
	if p.auth.secret != "" {
		call = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(p.token.Reveal()))
	}
	answer, err := health.NewHealthClient(conn).Check(call, &health.HealthCheckRequest{Service: p.service})
	if err != nil {
		select {
		case dialErr := <-dialed:
			if dialErr != nil {
				err = dialErr
			}
		default:
		}
		return p.grpcFailure(ctx, err)
	}
	if answer.GetStatus() != health.HealthCheckResponse_SERVING {
		return p.unwell("its status is %s", answer.GetStatus())
	}
	return nil
}

func (p *probe) grpcCredentials() credentials.TransportCredentials {
	if p.secure {
		return credentials.NewTLS(p.tools.Net.TLS(""))
	}
	return insecure.NewCredentials()
}

// grpcFailure tells a server that is not well from one that is and does not
// take the question.
func (p *probe) grpcFailure(ctx context.Context, err error) error {
	st, ok := status.FromError(err)
	if !ok || ctx.Err() != nil {
		return failure(ctx, p.String(), err, p.hidden()...)
	}
	switch st.Code() {
	case codes.NotFound:
		return p.refused("it knows no service %.64q", p.service)
	case codes.Unimplemented:
		return p.refused("it does not answer the health protocol of gRPC")
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument, codes.FailedPrecondition:
		return p.refused("it refuses the question: %s", st.Code())
	default:
		return failure(ctx, p.String(), errors.New(st.Message()), p.hidden()...)
	}
}
