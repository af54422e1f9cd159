package types_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

const secretCheck = "secret_check"

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

const day = 24 * time.Hour

// sign makes a certificate; the zero authority signs itself.
func (a authority) sign(t *testing.T, name string, from, to time.Time) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: to,
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: name != "leaf", BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if a.key == nil {
		a = authority{cert: c, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	require.NoError(t, err)
	c, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{cert: c, key: key}
}

func pemOf(certs ...authority) string {
	var b strings.Builder
	for _, c := range certs {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw}) // a strings.Builder takes everything
	}
	return b.String()
}

// certBundle has a root, one between, and a clock that stands at noon.
func certBundle(t *testing.T) (b *testBundle, root, between authority, folder string) {
	t.Helper()
	root = authority{}.sign(t, "root", noon().Add(-day), noon().Add(1000*day))
	between = root.sign(t, "between", noon().Add(-day), noon().Add(20*day))
	folder = t.TempDir()
	b = setup(t, func(b *testBundle) {
		b.Now, b.Files = noon, folder
		b.config.Roots = x509.NewCertPool()
		b.config.Roots.AddCert(root.cert)
	})
	return b, root, between, folder
}

// tlsServer shows certificates to whoever connects.
func tlsServer(t *testing.T, certs ...authority) string {
	t.Helper()
	shown := tls.Certificate{PrivateKey: certs[0].key}
	for _, c := range certs {
		shown.Certificate = append(shown.Certificate, c.cert.Raw)
	}
	return speak(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{shown}, MinVersion: tls.VersionTLS12})
		_, _ = io.Copy(io.Discard, s) // until the other side has gone
	})
}

func TestCertificateOfHost(t *testing.T) {
	t.Parallel()
	b, root, between, _ := certBundle(t)
	leaf := between.sign(t, "leaf", noon().Add(-day), noon().Add(90*day))
	addr := tlsServer(t, leaf, between)
	w := with{"kind": "x509", "address": addr, "min_valid": "240h"}
	out := b.succeeds(t, secretCheck, w)
	require.Equal(t, int((20 * day).Seconds()), out["valid_for_s"], "the one between ends first")
	require.Equal(t, "CN=leaf", out["subject"])
	require.Equal(t, addr, b.job(t, secretCheck, w).Target())
	w["min_valid"] = "500h"
	b.fails(t, secretCheck, w, unexpected(), "in 480h0m0s; expected are at least 500h0m0s")
	w["server_name"] = "leaf"
	w["min_valid"] = "0s"
	b.succeeds(t, secretCheck, w)
	w["server_name"] = "other"
	b.fails(t, secretCheck, w, unexpected(), "not other")

	b.fails(t, secretCheck, with{"kind": "x509", "address": tlsServer(t, leaf)}, unexpected(), "unknown authority")
	expired := root.sign(t, "leaf", noon().Add(-2*day), noon().Add(-day))
	b.fails(t, secretCheck, with{"kind": "x509", "address": tlsServer(t, expired)}, unexpected(), "that of CN=leaf has expired, at 2027-01-14T08:00:00Z")
	early := root.sign(t, "leaf", noon().Add(day), noon().Add(2*day))
	b.fails(t, secretCheck, with{"kind": "x509", "address": tlsServer(t, early)}, unexpected(), "is not valid before 2027-01-16T08:00:00Z")
	b.fails(t, secretCheck, with{"kind": "x509", "address": nobody(t)}, unwell(), "connection refused")
	b.fails(t, secretCheck, with{"kind": "x509", "address": speak(t, says("garbage"))}, unwell(), "tls")
}

func TestCertificateInFile(t *testing.T) {
	t.Parallel()
	b, _, between, folder := certBundle(t)
	leaf := between.sign(t, "leaf", noon().Add(-day), noon().Add(10*day))
	path := filepath.Join(folder, "tls.pem")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	w := with{"kind": "x509", "file": path}
	write("-----BEGIN PRIVATE KEY-----\nMTIz\n-----END PRIVATE KEY-----\n" + pemOf(leaf, between))
	require.Equal(t, int((10 * day).Seconds()), b.succeeds(t, secretCheck, w)["valid_for_s"])
	write(pemOf(leaf))
	b.fails(t, secretCheck, w, unexpected(), "unknown authority")
	write("no pem")
	b.fails(t, secretCheck, w, unexpected(), "no certificate in PEM")
	write("-----BEGIN CERTIFICATE-----\nMTIz\n-----END CERTIFICATE-----\n")
	b.fails(t, secretCheck, w, unexpected(), "certificate 1")

	mine := authority{}.sign(t, "mine", noon().Add(-day), noon().Add(5*day))
	write(pemOf(mine))
	b.fails(t, secretCheck, w, unexpected(), "unknown authority")
	ca := filepath.Join(folder, "ca.pem")
	require.NoError(t, os.WriteFile(ca, []byte(pemOf(mine)), 0o600))
	w["ca_file"] = ca
	b.succeeds(t, secretCheck, w)

	b2, root, _, _ := certBundle(t)
	known := secrets{"PEM": pemOf(root.sign(t, "leaf", noon().Add(-day), noon().Add(3*day)))}
	b3 := setup(t, func(b *testBundle) { b.Tools, b.config, b.Secrets = b2.Tools, b2.config, known })
	require.Equal(t, int((3 * day).Seconds()), b3.succeeds(t, secretCheck, with{"kind": "x509", "secret": "PEM"})["valid_for_s"])
}

func token(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	text, err := jwt.NewWithClaims(method, claims).SignedString(key)
	require.NoError(t, err)
	return text
}

func TestJWT(t *testing.T) {
	t.Parallel()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(pair.Public())
	require.NoError(t, err)
	public := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	claims := func(more jwt.MapClaims) jwt.MapClaims {
		all := jwt.MapClaims{"exp": noon().Add(time.Hour).Unix(), "iss": "belay", "aud": []string{"shop", "till"}}
		maps.Copy(all, more)
		return all
	}
	hmacKey := []byte("key-of-the-issuer")
	b := setup(t, func(b *testBundle) {
		b.Now = noon
		b.Secrets = secrets{
			"KEY": string(hmacKey), "OTHER": "key-of-another", "PUBLIC": public,
			"PRIVATE":  "-----BEGIN PRIVATE KEY-----\nMTIz\n-----END PRIVATE KEY-----\n",
			"GOOD":     token(t, jwt.SigningMethodHS256, hmacKey, claims(nil)),
			"EC":       token(t, jwt.SigningMethodES256, pair, claims(nil)),
			"CONFUSED": token(t, jwt.SigningMethodHS256, []byte(public), claims(nil)),
			"NONE":     token(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims(nil)),
			"OLD":      token(t, jwt.SigningMethodHS256, hmacKey, claims(jwt.MapClaims{"exp": noon().Add(-time.Second).Unix()})),
			"EARLY":    token(t, jwt.SigningMethodHS256, hmacKey, claims(jwt.MapClaims{"nbf": noon().Add(time.Hour).Unix()})),
			"FOREVER":  token(t, jwt.SigningMethodHS256, hmacKey, jwt.MapClaims{"iss": "belay"}),
			"OPAQUE":   password, "DOTS": "a.b.c",
		}
	})
	check := func(secret string, more with) with {
		w := with{"kind": "jwt", "secret": secret}
		maps.Copy(w, more)
		return w
	}
	out := b.succeeds(t, secretCheck, check("GOOD", with{"key": "KEY", "issuer": "belay", "audience": "till", "min_valid": "30m"}))
	require.Equal(t, 3600, out["valid_for_s"])
	require.Equal(t, "2027-01-15T09:00:00Z", out["expires_at"])
	b.succeeds(t, secretCheck, check("GOOD", nil))
	b.succeeds(t, secretCheck, check("EC", with{"key": "PUBLIC"}))
	for _, c := range []struct {
		w    with
		says string
	}{
		{check("GOOD", with{"key": "OTHER"}), "its signature is not by the key OTHER"},
		{check("GOOD", with{"key": "PUBLIC"}), "its signature is not by the key PUBLIC"},
		{check("CONFUSED", with{"key": "PUBLIC"}), "its signature is not by the key PUBLIC"},
		{check("NONE", with{"key": "KEY"}), "its signature is not by the key KEY"},
		{check("NONE", nil), "it is not signed"},
		{check("OLD", with{"key": "KEY"}), "has expired, at 2027-01-15T07:59:59Z"},
		{check("GOOD", with{"min_valid": "2h"}), "in 1h0m0s; expected are at least 2h0m0s"},
		{check("EARLY", nil), "not valid before"},
		{check("FOREVER", nil), "it never expires"},
		{check("OPAQUE", nil), "it is no JWT"},
		{check("DOTS", with{"key": "KEY"}), "it is no JWT"},
		{check("GOOD", with{"issuer": "other"}), `its issuer is not "other"`},
		{check("GOOD", with{"audience": "other"}), `it is not for "other"`},
	} {
		b.fails(t, secretCheck, c.w, unexpected(), c.says)
	}
	b.fails(t, secretCheck, check("GOOD", with{"key": "PRIVATE"}), invalid(), "expected a public key")
}

func TestTokenProbe(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/down":
			w.WriteHeader(http.StatusBadGateway)
		case r.Header.Get("Authorization") != "Bearer "+password:
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	b := setup(t, func(b *testBundle) { b.Secrets = secrets{"TOKEN": password, "OLD": "old-token"} })
	require.Equal(t, 200, b.succeeds(t, secretCheck, with{"kind": "token", "url": url, "secret": "TOKEN"})["status"])
	b.fails(t, secretCheck, with{"kind": "token", "url": url, "secret": "OLD"}, unexpected(), "the secret OLD: "+url+" refuses it with 401")
	b.succeeds(t, secretCheck, with{"kind": "token", "url": url, "secret": "OLD", "status": 401})
	b.fails(t, secretCheck, with{"kind": "token", "url": url + "/down", "secret": "TOKEN"}, unwell(), "answered 502")
}
