package container_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/container"
)

type login struct{ Username, Password, IdentityToken, ServerAddress string }

// loginOf reads what the engine is told.
func loginOf(t *testing.T, text string) login {
	t.Helper()
	if text == "" {
		return login{}
	}
	raw, err := base64.URLEncoding.DecodeString(text)
	require.NoError(t, err)
	var l login
	require.NoError(t, json.Unmarshal(raw, &l))
	return l
}

// knowing is a host with this registry configuration.
func knowing(t *testing.T, text string) *container.Host {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	h, err := container.New(container.Options{Address: "unix:///none.sock", HostID: "h", RegistryConfig: file})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

func TestLogin(t *testing.T) {
	t.Parallel()
	text, err := container.Login("registry.example:5000/team/tools:1", "ci", "pass:word")
	require.NoError(t, err)
	require.Equal(t, login{Username: "ci", Password: "pass:word", ServerAddress: "registry.example:5000"}, loginOf(t, text))

	h := knowing(t, `{"auths": {
		"registry.example": {"auth": "`+base64.StdEncoding.EncodeToString([]byte("ci:pass:word"))+`"},
		"https://index.docker.io/v1/": {"username": "hub", "password": "p"},
		"token.example": {"identitytoken": "t"}, "empty.example": {}, "broken.example": {"auth": "!"}
	}}`)
	for image, want := range map[string]login{
		"registry.example/a:1":    {Username: "ci", Password: "pass:word", ServerAddress: "registry.example"},
		"alpine":                  {Username: "hub", Password: "p", ServerAddress: "https://index.docker.io/v1/"},
		"docker.io/library/redis": {Username: "hub", Password: "p", ServerAddress: "https://index.docker.io/v1/"},
		"token.example/a":         {IdentityToken: "t", ServerAddress: "token.example"},
		"empty.example/a":         {},
		"unknown.example/a":       {},
	} {
		text, err := h.Login(t.Context(), image)
		require.NoError(t, err, image)
		require.Equal(t, want, loginOf(t, text), image)
	}
	_, err = h.Login(t.Context(), "broken.example/a")
	require.ErrorContains(t, err, "broken.example")
	_, err = knowing(t, `{"auths": "secret`).Login(t.Context(), "alpine")
	require.ErrorContains(t, err, "not JSON")
	require.NotContains(t, err.Error(), "secret")
}

// TestLoginByAHelper changes the path by which helpers are found.
func TestLoginByAHelper(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker-credential-test"), []byte(`#!/bin/sh
read server
case $server in
known.example) echo '{"Username": "ci", "Secret": "s"}' ;;
token.example) echo '{"Username": "<token>", "Secret": "t"}' ;;
unknown.example) echo 'credentials not found in native keychain'; exit 1 ;;
*) echo no; exit 1 ;;
esac
`), 0o755))
	h := knowing(t, `{"credHelpers": {"known.example": "test", "token.example": "test", "unknown.example": "test"}, "credsStore": "test"}`)
	for image, want := range map[string]login{
		"known.example/a":   {Username: "ci", Password: "s", ServerAddress: "known.example"},
		"token.example/a":   {IdentityToken: "t", ServerAddress: "token.example"},
		"unknown.example/a": {},
	} {
		text, err := h.Login(t.Context(), image)
		require.NoError(t, err, image)
		require.Equal(t, want, loginOf(t, text), image)
	}
	_, err := h.Login(t.Context(), "other.example/a")
	require.ErrorContains(t, err, "docker-credential-test")
}
