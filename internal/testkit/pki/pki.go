// Package pki makes certificates for tests.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates.
type Authority struct {
	// Pool trusts it alone.
	Pool *x509.CertPool

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// NewAuthority makes an authority.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()
	a := &Authority{Pool: x509.NewCertPool()}
	a.cert, a.key, a.pem = certificate(t, "authority", nil)
	a.Pool.AddCert(a.cert)
	return a
}

// Files are the certificate and the key of one side, and the authority that it
// believes.
type Files struct{ CA, Cert, Key string }

// Dir names the files in a new folder, which are not there yet.
func Dir(t *testing.T) Files {
	t.Helper()
	dir := t.TempDir()
	return Files{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

// Issue writes the authority, and a new certificate for that name and 127.0.0.1
// with its key, over what is in the files.
func (a *Authority) Issue(t *testing.T, name string, to Files) {
	t.Helper()
	_, key, cert := certificate(t, name, a)
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for path, text := range map[string][]byte{
		to.CA: a.pem, to.Cert: cert, to.Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}),
	} {
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
}

// certificate makes a certificate, signed by an authority or, without one, by itself.
func certificate(t *testing.T, name string, by *Authority) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	parent, signer := template, key
	if by == nil {
		template.IsCA, template.KeyUsage = true, template.KeyUsage|x509.KeyUsageCertSign
	} else {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
