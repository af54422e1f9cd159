package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"belay.run/internal/certs"
	"belay.run/internal/testkit/pki"
)

func open(t *testing.T, f pki.Files) (*certs.Source, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	s, err := certs.Open(certs.Files(f), zap.New(core))
	require.NoError(t, err)
	return s, logs
}

// shake has two sides shake hands and returns the name in the certificate that the
// client was shown.
func shake(t *testing.T, server, client *tls.Config) (string, error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Read(make([]byte, 1)) // it shakes hands, and ends where the client does
		_ = conn.Close()
	}()
	defer func() { <-done }()
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		return "", err
	}
	defer func() { require.NoError(t, conn.Close()) }()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestRenewedCertificatesAreUsed(t *testing.T) {
	t.Parallel()
	old, other := pki.NewAuthority(t), pki.NewAuthority(t)
	serverFiles, clientFiles := pki.Dir(t), pki.Dir(t)
	old.Issue(t, "one", serverFiles)
	old.Issue(t, "client", clientFiles)
	server, serverLog := open(t, serverFiles)
	client, _ := open(t, clientFiles)
	base := &tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	try := func() (string, error) { return shake(t, server.Server(), client.Client(base)) }

	name, err := try()
	require.NoError(t, err)
	require.Equal(t, "one", name)

	old.Issue(t, "two", serverFiles)
	name, err = try()
	require.NoError(t, err)
	require.Equal(t, "two", name)
	require.Equal(t, 1, serverLog.FilterMessage("certificates were read again").Len())

	// The server has gone over to another authority, and then the client has.
	other.Issue(t, "three", serverFiles)
	_, err = try()
	require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
	other.Issue(t, "client", clientFiles)
	name, err = try()
	require.NoError(t, err)
	require.Equal(t, "three", name)
	require.Nil(t, base.RootCAs, "what was given stays as it was")
}

// TestHalfARenewal holds that what does not fit together yet is not used, and is
// said once.
func TestHalfARenewal(t *testing.T) {
	t.Parallel()
	a := pki.NewAuthority(t)
	files, next := pki.Dir(t), pki.Dir(t)
	a.Issue(t, "one", files)
	a.Issue(t, "two", next)
	s, logs := open(t, files)
	shown := func() string {
		name, err := shake(t, s.Server(), &tls.Config{ServerName: "127.0.0.1", RootCAs: a.Pool, MinVersion: tls.VersionTLS12})
		require.NoError(t, err)
		return name
	}
	move := func(from, to string) {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, text, 0o600))
	}

	move(next.Cert, files.Cert)
	require.Equal(t, "one", shown())
	require.Equal(t, "one", shown())
	require.Equal(t, 1, logs.FilterLevelExact(zap.ErrorLevel).Len())
	move(next.Key, files.Key)
	require.Equal(t, "two", shown())

	require.NoError(t, os.Remove(files.Cert))
	require.Equal(t, "two", shown())
	require.Equal(t, 2, logs.FilterLevelExact(zap.ErrorLevel).Len())
	require.NoError(t, os.WriteFile(files.CA, []byte("nothing"), 0o600))
	move(next.Cert, files.Cert)
	require.Equal(t, "two", shown())
	require.Equal(t, 3, logs.FilterLevelExact(zap.ErrorLevel).Len())
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	a := pki.NewAuthority(t)
	one, two := pki.Dir(t), pki.Dir(t)
	a.Issue(t, "one", one)
	a.Issue(t, "two", two)
	for want, f := range map[string]certs.Files{
		"belong together":              {Cert: one.Cert},
		"private key does not match":   {Cert: one.Cert, Key: two.Key},
		"no such file":                 {CA: one.CA + "x"},
		"no certificate in " + one.Key: {CA: one.Key},
	} {
		_, err := certs.Open(f, nil)
		require.ErrorContains(t, err, want)
	}
}
