package host

import (
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/config"
	"belay.run/internal/seal"
	"belay.run/internal/testkit/pki"
)

// TestHTTPSpeaksTLS holds that tokens can go over the worker's address without
// being read on the way, also after its certificate was renewed.
func TestHTTPSpeaksTLS(t *testing.T) {
	t.Parallel()
	a, files, address := pki.NewAuthority(t), pki.Dir(t), freeAddress(t)
	a.Issue(t, "first", files)
	newWorker(t, Config{Settings: settingsFor(t, "--http-address", address, "--http-tls-cert", files.Cert, "--http-tls-key", files.Key)})
	shown := func() string {
		t.Helper()
		c := &http.Client{Timeout: patience, Transport: &http.Transport{
			DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: a.Pool, MinVersion: tls.VersionTLS12},
		}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/healthz", http.NoBody)
		require.NoError(t, err)
		resp, err := c.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	require.Equal(t, "first", shown())
	a.Issue(t, "second", files)
	require.Equal(t, "second", shown())

	// In clear nothing is said: the connection ends, with 400 where that still arrives.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", http.NoBody)
	require.NoError(t, err)
	resp, err := (&http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err == nil {
		require.Equal(t, http.StatusBadRequest, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
}

func TestHTTPNeedsItsCertificate(t *testing.T) {
	t.Parallel()
	files := pki.Dir(t)
	_, err := New(Config{Settings: settingsFor(t, "--http-address", freeAddress(t), "--http-tls-cert", files.Cert, "--http-tls-key", files.Key)})
	var setting *config.SettingError
	require.ErrorAs(t, err, &setting)
	require.ErrorContains(t, err, "BELAY_HTTP_TLS_CERT")
}

// keyed are the flags of a worker with a key for payloads, and a token for the
// codec server.
func keyed(t *testing.T, more ...string) []string {
	t.Helper()
	dir := t.TempDir()
	key := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", seal.KeySize)))
	for name, text := range map[string]string{"KEY": key, "UI": "the-token-of-the-ui-0123"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return append([]string{"--secrets", "dir:" + dir, "--payload-keys", "k1=KEY"}, more...)
}

func TestCodecServer(t *testing.T) {
	t.Parallel()
	const path = "/api/v1/codec/decode"

	t.Run("IsThereForThoseWhoAreNamed", func(t *testing.T) {
		t.Parallel()
		address, url := elsewhere(t)
		newWorker(t, Config{Settings: settingsFor(t, keyed(t, "--http-address", address, "--http-api", "off", "--codec-tokens", "UI")...)})
		status, _ := ask(t, http.MethodPost, url+path, "{}", "")
		require.Equal(t, http.StatusUnauthorized, status)
		status, text := ask(t, http.MethodPost, url+path, "{}", "the-token-of-the-ui-0123")
		require.Equal(t, http.StatusOK, status, text)
	})

	t.Run("IsNotThereForNobody", func(t *testing.T) {
		t.Parallel()
		address := freeAddress(t)
		newWorker(t, Config{Settings: settingsFor(t, keyed(t, "--http-address", address)...)})
		status, _ := ask(t, http.MethodPost, "http://"+address+path, "{}", "")
		require.Equal(t, http.StatusNotFound, status)
	})

	t.Run("NeedsTokensOffThisMachine", func(t *testing.T) {
		t.Parallel()
		address, _ := elsewhere(t)
		_, err := New(Config{Settings: settingsFor(t, keyed(t, "--http-address", address, "--http-api", "off", "--codec-origins", "https://ui.example.com")...)})
		require.ErrorContains(t, err, "BELAY_CODEC_TOKENS")
	})
}

func TestKeysAreTheWorkersOwn(t *testing.T) {
	t.Parallel()
	w := newWorker(t, Config{Settings: settingsFor(t, keyed(t, "--http-address", config.HTTPOff, "--codec-tokens", "UI")...)})
	for _, name := range []string{"KEY", "UI"} {
		_, err := w.deps.secrets.Get(t.Context(), name)
		require.ErrorContains(t, err, "it is the worker's own")
	}
	_, err := New(Config{Settings: settingsFor(t, "--http-address", config.HTTPOff, "--payload-keys", "k1=NONE")})
	var setting *config.SettingError
	require.ErrorAs(t, err, &setting)
	require.ErrorContains(t, err, "BELAY_PAYLOAD_KEYS: key k1: secret NONE: not found")
}
