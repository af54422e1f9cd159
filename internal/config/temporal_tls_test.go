package config_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"belay.run/internal/config"
	"belay.run/internal/testkit/pki"
)

// secureTemporal is a fake that speaks TLS, and ends connections soon, as real
// ones do after some minutes.
type secureTemporal struct {
	fakeTemporal

	mu   sync.Mutex
	tls  *tls.Config
	key  string // the bearer token of the last call
	peer string // the name in its certificate
}

// use has the server go over to another certificate and another authority.
func (s *secureTemporal) use(t *testing.T, a *pki.Authority) {
	t.Helper()
	files := pki.Dir(t)
	a.Issue(t, "temporal", files)
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	require.NoError(t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tls = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: a.Pool, ClientAuth: tls.VerifyClientCertIfGiven,
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
	}
}

// notice keeps who calls.
func (s *secureTemporal) notice(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	s.mu.Lock()
	s.key, s.peer = "", ""
	if md, ok := metadata.FromIncomingContext(ctx); ok && len(md.Get("authorization")) > 0 {
		s.key = md.Get("authorization")[0]
	}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.PeerCertificates) > 0 {
			s.peer = info.State.PeerCertificates[0].Subject.CommonName
		}
	}
	s.mu.Unlock()
	return next(ctx, req)
}

func (s *secureTemporal) last() (key, peer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key, s.peer
}

func (s *secureTemporal) serve(t *testing.T) (address string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.tls, nil
		}})),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 100 * time.Millisecond, MaxConnectionAgeGrace: time.Second}),
		grpc.UnaryInterceptor(s.notice))
	workflowservice.RegisterWorkflowServiceServer(server, s)
	h := health.NewServer()
	h.SetServingStatus("temporal.api.workflowservice.v1.WorkflowService", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, h)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-done)
	})
	return l.Addr().String()
}

// TestTemporalCertificatesAreRenewed holds that a client goes on over the renewal
// of its certificate and of the authority that it believes.
func TestTemporalCertificatesAreRenewed(t *testing.T) {
	t.Parallel()
	old, next := pki.NewAuthority(t), pki.NewAuthority(t)
	s := new(secureTemporal)
	s.use(t, old)
	address, files := s.serve(t), pki.Dir(t)
	old.Issue(t, "first", files)
	c, err := config.DialTemporal(t.Context(), config.TemporalOptions{Patience: time.Minute, Environ: []string{
		"TEMPORAL_ADDRESS=" + address, "TEMPORAL_CONFIG_FILE=/dev/null", "TEMPORAL_TLS_SERVER_CA_CERT_PATH=" + files.CA,
		"TEMPORAL_TLS_CLIENT_CERT_PATH=" + files.Cert, "TEMPORAL_TLS_CLIENT_KEY_PATH=" + files.Key,
	}})
	require.NoError(t, err)
	defer c.Close()
	_, name := s.last()
	require.Equal(t, "first", name)
	becomes := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool {
			err := c.Check(t.Context())
			_, name := s.last()
			return err == nil && name == want
		}, time.Minute, 20*time.Millisecond)
	}

	old.Issue(t, "second", files)
	becomes("second")
	s.use(t, next)
	require.Eventually(t, func() bool { return c.Check(t.Context()) != nil }, time.Minute, 20*time.Millisecond, "it believes whom it does not know")
	next.Issue(t, "third", files)
	becomes("third")
}

func TestTemporalFilesThatAreWrong(t *testing.T) {
	t.Parallel()
	_, err := config.DialTemporal(t.Context(), config.TemporalOptions{Environ: []string{
		"TEMPORAL_CONFIG_FILE=/dev/null", "TEMPORAL_TLS_SERVER_CA_CERT_PATH=/no/such/file",
	}})
	var setting *config.SettingError
	require.ErrorAs(t, err, &setting)
	require.ErrorContains(t, err, "/no/such/file")
}

// TestTemporalAPIKeyIsReplaced holds that the file is read again.
func TestTemporalAPIKeyIsReplaced(t *testing.T) {
	t.Parallel()
	a := pki.NewAuthority(t)
	s := new(secureTemporal)
	s.use(t, a)
	files, keyFile := pki.Dir(t), filepath.Join(t.TempDir(), "key")
	a.Issue(t, "unused", files)
	require.NoError(t, os.WriteFile(keyFile, []byte("the first key\n"), 0o600))
	environ := []string{"TEMPORAL_ADDRESS=" + s.serve(t), "TEMPORAL_CONFIG_FILE=/dev/null", "TEMPORAL_TLS_SERVER_CA_CERT_PATH=" + files.CA}
	c, err := config.DialTemporal(t.Context(), config.TemporalOptions{Patience: time.Minute, Environ: environ, APIKeyFile: keyFile})
	require.NoError(t, err)
	defer c.Close()
	key, name := s.last()
	require.Equal(t, "Bearer the first key", key)
	require.Empty(t, name)
	require.NoError(t, os.WriteFile(keyFile, []byte("the second key\n"), 0o600))
	require.Eventually(t, func() bool {
		err := c.Check(t.Context())
		key, _ := s.last()
		return err == nil && key == "Bearer the second key"
	}, time.Minute, 20*time.Millisecond)

	for path, want := range map[string]string{keyFile + "x": "no such file", "/dev/null": "/dev/null is empty"} {
		_, err = config.DialTemporal(t.Context(), config.TemporalOptions{Environ: environ, APIKeyFile: path})
		require.ErrorContains(t, err, want)
	}
	_, err = config.DialTemporal(t.Context(), config.TemporalOptions{Environ: append(environ, "TEMPORAL_API_KEY=hunter2"), APIKeyFile: keyFile})
	require.ErrorContains(t, err, "BELAY_TEMPORAL_API_KEY_FILE")
	require.NotContains(t, err.Error(), "hunter2")
}
