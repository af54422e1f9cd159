package config_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"belay.run/internal/config"
)

// fakeTemporal answers what a connection asks first.
type fakeTemporal struct {
	workflowservice.UnimplementedWorkflowServiceServer

	// failures is how many of the first calls find the server not ready.
	failures atomic.Int64
	// describe is the answer to the question about the namespace.
	describe error
}

func (f *fakeTemporal) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{ServerVersion: "1.32.1", Capabilities: &workflowservice.GetSystemInfoResponse_Capabilities{}}, nil
}

func (f *fakeTemporal) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	if f.failures.Add(-1) >= 0 {
		return nil, status.Error(codes.Internal, "not yet")
	}
	return &workflowservice.DescribeNamespaceResponse{}, serviceerror.ToStatus(f.describe).Err()
}

// serve starts the fake and returns the environment that leads to it.
func (f *fakeTemporal) serve(t *testing.T) (environ []string, address string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(s, f)
	h := health.NewServer()
	h.SetServingStatus("temporal.api.workflowservice.v1.WorkflowService", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(s, h)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-done)
	})
	address = l.Addr().String()
	return []string{"TEMPORAL_ADDRESS=" + address, "TEMPORAL_NAMESPACE=ci", "TEMPORAL_CONFIG_FILE=/dev/null"}, address
}

func TestDialTemporal(t *testing.T) {
	t.Parallel()

	t.Run("AsTheEnvironmentSays", func(t *testing.T) {
		t.Parallel()
		environ, address := new(fakeTemporal).serve(t)
		c, err := config.DialTemporal(t.Context(), config.TemporalOptions{Environ: environ})
		require.NoError(t, err)
		defer c.Close()
		require.Equal(t, address, c.Address)
		require.Equal(t, "ci", c.Namespace)
		require.NoError(t, c.Check(t.Context()))
	})

	t.Run("TheLastOfAVariableCounts", func(t *testing.T) {
		t.Parallel()
		environ, _ := new(fakeTemporal).serve(t)
		c, err := config.DialTemporal(t.Context(), config.TemporalOptions{Environ: append(environ, "TEMPORAL_NAMESPACE=other", "TEMPORAL_NAMESPACES=x")})
		require.NoError(t, err)
		defer c.Close()
		require.Equal(t, "other", c.Namespace)
	})

	t.Run("WaitsUntilItIsThere", func(t *testing.T) {
		t.Parallel()
		f := new(fakeTemporal)
		f.failures.Store(2)
		environ, address := f.serve(t)
		var waits []*config.UnreachableError
		c, err := config.DialTemporal(t.Context(), config.TemporalOptions{
			Environ: environ,
			Waiting: func(err *config.UnreachableError, _ time.Duration) { waits = append(waits, err) },
		})
		require.NoError(t, err)
		c.Close()
		require.NotEmpty(t, waits)
		require.Equal(t, "Temporal", waits[0].Service)
		require.Equal(t, address, waits[0].Address)
	})

	t.Run("GivesUpWhenPatienceEnds", func(t *testing.T) {
		t.Parallel()
		address := closedPort(t)
		_, err := config.DialTemporal(t.Context(), config.TemporalOptions{
			Environ: []string{"TEMPORAL_ADDRESS=" + address, "TEMPORAL_CONFIG_FILE=/dev/null"}, Patience: 300 * time.Millisecond,
		})
		var unreachable *config.UnreachableError
		require.ErrorAs(t, err, &unreachable)
		require.Equal(t, address, unreachable.Address)
		require.ErrorContains(t, err, "cannot use Temporal at "+address)
		require.ErrorContains(t, err, "TEMPORAL_ADDRESS")
	})

	t.Run("GivesUpWhenItsContextEnds", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := config.DialTemporal(ctx, config.TemporalOptions{
			Environ: []string{"TEMPORAL_ADDRESS=" + closedPort(t), "TEMPORAL_CONFIG_FILE=/dev/null"},
		})
		var unreachable *config.UnreachableError
		require.ErrorAs(t, err, &unreachable)
	})

	t.Run("WithoutTheNamespaceABoundedWaitEndsAtOnce", func(t *testing.T) {
		t.Parallel()
		environ, _ := (&fakeTemporal{describe: serviceerror.NewNamespaceNotFound("ci")}).serve(t)
		_, err := config.DialTemporal(t.Context(), config.TemporalOptions{Environ: environ, Patience: time.Hour})
		var unreachable *config.UnreachableError
		require.ErrorAs(t, err, &unreachable)
		require.ErrorContains(t, err, `"ci"`)
		require.ErrorContains(t, err, "TEMPORAL_NAMESPACE")
	})

	t.Run("OneNeedNotBeAllowedToLookAtTheNamespace", func(t *testing.T) {
		t.Parallel()
		environ, _ := (&fakeTemporal{describe: serviceerror.NewPermissionDenied("no", "")}).serve(t)
		c, err := config.DialTemporal(t.Context(), config.TemporalOptions{Environ: environ, Patience: time.Hour})
		require.NoError(t, err)
		c.Close()
	})

	t.Run("ProfilesOfTemporalsOwnFile", func(t *testing.T) {
		t.Parallel()
		environ, address := new(fakeTemporal).serve(t)
		path := file(t, "[profile.staging]\naddress = \""+address+"\"\nnamespace = \"from-file\"\n")
		c, err := config.DialTemporal(t.Context(), config.TemporalOptions{Environ: []string{
			"TEMPORAL_CONFIG_FILE=" + path, "TEMPORAL_PROFILE=staging",
		}})
		require.NoError(t, err)
		c.Close()
		require.Equal(t, "from-file", c.Namespace)

		_, err = config.DialTemporal(t.Context(), config.TemporalOptions{Environ: append(environ, "TEMPORAL_CONFIG_FILE="+path, "TEMPORAL_PROFILE=none")})
		require.ErrorContains(t, err, "none")
		require.ErrorContains(t, err, "profile")
	})
}

// closedPort is an address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}
