package types_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"belay.run/internal/task"
	"belay.run/internal/task/types"
)

// examples are tasks that are right. Together they give each parameter of each
// type at least once.
func examples() map[string][]with {
	return map[string][]with{
		"noop": {{}, {"sleep": "1s"}},
		"http": {
			{"url": "https://h/"},
			{"url": "http://h:8080/a?b", "method": "PUT", "headers": with{"A": "b"}, "body": "x", "status": []any{200, "3xx"}, "redirects": 0, "max_bytes": "5"},
			{"url": "http://[::1]/", "expect": "x", "expect_json": with{"a": "b"}, "secret": "S", "auth": "header", "auth_header": "X-Key"},
		},
		healthCheck: {
			{"url": "https://h/", "status": 204, "expect": "ok", "secret": "S"},
			{"url": "h:5", "kind": "grpc", "service": "shop"},
		},
		webhook: {
			{"provider": "stripe", "secret": "S", "headers": with{"A": "b"}, "body": "x", "tolerance": "10m"},
			{
				"provider": "hmac", "secret": "S", "headers": with{"A": "b"}, "body_base64": "eA==", "header": "A", "prefix": "p=",
				"algorithm": "sha1", "encoding": "base64", "timestamp_header": "T",
			},
		},
		configSync: {
			{"source": "https://h/c", "target": "/etc/c", "mode": "0640", "source_secret": "S", "max_bytes": 5},
			{"source": "/etc/c", "target": "rediss://ada@h:1/2", "key": "k", "target_secret": "S"},
			{"source": "/etc/c", "target": "https://h/"},
		},
		secretCheck: {
			{"kind": "x509", "address": "h:443", "server_name": "h", "min_valid": "336h", "ca_file": "/ca"},
			{"kind": "x509", "file": "/c.pem"},
			{"kind": "jwt", "secret": "S", "key": "K", "issuer": "i", "audience": "a"},
			{"kind": "token", "url": "https://h/", "secret": "S", "status": 200, "auth": "header", "auth_header": "A"},
		},
		statusSync: {
			{
				"provider": "github", "repository": "a/b", "api": "https://h/api", "commit": "1234567", "state": "success", "context": "c",
				"description": "d", "target_url": "https://h/", "secret": "S",
			},
			{"provider": "http", "url": "https://h/", "commit": "1234567", "state": "error"},
		},
	}
}

// wrongValue is a value that no parameter of a kind can have.
func wrongValue(p task.Param) any {
	switch p.Kind {
	case task.Text, task.Secret:
		return 5
	case task.Number, task.Truth, task.Duration:
		return "soon"
	default:
		return true
	}
}

// TestParametersAndPrepareAgree holds each type to what it says of itself.
func TestParametersAndPrepareAgree(t *testing.T) {
	t.Parallel()
	b := &testBundle{registry: types.Builtin(types.Tools{})}
	for _, typ := range b.registry.Types() {
		name, all := typ.Name(), examples()[typ.Name()]
		require.NotEmpty(t, all, name)
		require.NotEmpty(t, typ.Doc(), name)
		given := map[string]with{}
		for _, w := range all {
			_, err := b.prepare(name, w)
			require.NoError(t, err, "%s %v", name, w)
			for param := range w {
				given[param] = w
			}
		}
		seen := map[string]bool{}
		for _, p := range typ.Params() {
			require.False(t, seen[p.Name], "%s: %s twice", name, p.Name)
			seen[p.Name] = true
			require.Contains(t, given, p.Name, name)
			require.NotEmpty(t, p.Doc, "%s: %s", name, p.Name)
			requireRefuses(t, b, name, given[p.Name], p)
		}
		_, err := b.prepare(name, with{"nothing_like_it": 1})
		require.ErrorContains(t, err, "nothing_like_it: not a parameter; there are", name)
		_, err = typ.Prepare([]byte(`{"a":`))
		require.ErrorContains(t, err, "no JSON", name)
	}
}

func requireRefuses(t *testing.T, b *testBundle, name string, right with, p task.Param) {
	t.Helper()
	changed := func(value any) error {
		w := with{}
		for k, v := range right {
			if k != p.Name {
				w[k] = v
			}
		}
		if value != nil {
			w[p.Name] = value
		}
		_, err := b.prepare(name, w)
		return err
	}
	require.ErrorContains(t, changed(wrongValue(p)), p.Name+": found ", "%s: %s", name, p.Name)
	if p.Required {
		require.ErrorContains(t, changed(nil), p.Name+": it is required", "%s: %s", name, p.Name)
	}
	if len(p.Enum) > 0 {
		require.ErrorContains(t, changed("xyzzy"), p.Name+`: found "xyzzy", expected `, "%s: %s", name, p.Name)
	}
}

func TestPrepareSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := &testBundle{registry: types.Builtin(types.Tools{})}
	for _, c := range []struct {
		typ  string
		with with
		says string
	}{
		{"http", with{"url": ""}, "http: url: it is empty"},
		{"http", with{"url": "shop/health"}, "url: it has no scheme"},
		{"http", with{"url": "ftp://h/"}, `url: found the scheme "ftp", expected http, https`},
		{"http", with{"url": "http:///x"}, "url: it names no host"},
		{"http", with{"url": "http://h:0/"}, `url: found the port "0", expected 1 to 65535`},
		{"http", with{"url": "http://h /"}, "url: it holds a space"},
		{"http", with{"urll": "http://h/"}, "urll: not a parameter; did you mean url?; url: it is required"},
		{"http", with{"url": "http://h/", "method": "GET", "body": "x"}, "body: a request of GET has none"},
		{"http", with{"url": "http://h/", "method": "HEAD", "expect": "x"}, "method: the answer to HEAD has no body"},
		{"http", with{"url": "http://h/", "expect": ""}, "expect: it holds an empty text"},
		{"http", with{"url": "http://h/", "status": []any{}}, "status: the list is empty"},
		{"http", with{"url": "http://h/", "status": "ok"}, `status: found "ok", expected such as 200`},
		{"http", with{"url": "http://h/", "status": "300-200"}, "status: found"},
		{"http", with{"url": "http://h/", "headers": with{"A b": "c"}}, `headers: "A b" is no name of a header`},
		{"http", with{"url": "http://h/", "headers": with{"A": "b\nc"}}, "headers: A: its value holds a line break"},
		{"http", with{"url": "http://h/", "headers": with{"content-length": "5"}}, "headers: Content-Length: it is set by Belay itself"},
		{"http", with{"url": "http://h/", "auth": "basic"}, "auth: there is nothing to send"},
		{"http", with{"url": "http://h/", "secret": "S", "auth_header": "A"}, "auth_header: it belongs to auth: header"},
		{"http", with{"url": "http://h/", "secret": "S", "auth": "header"}, `auth_header: found "", expected the name of a header`},
		{"http", with{"url": "http://h/", "secret": "S", "auth": "header", "auth_header": "host"}, `auth_header: found "host", which cannot hold a secret`},
		{"http", with{"url": "http://h/", "secret": "S", "auth": "header", "auth_header": "Content-Length"}, `auth_header: found "Content-Length", which cannot hold a secret`},
		{"http", with{"url": "http://h/", "redirects": 11}, "redirects: found 11, expected 0 to 10"},
		{healthCheck, with{"url": "gopher://h/"}, `url: found the scheme "gopher", expected http, https, tcp, grpc`},
		{healthCheck, with{"url": "tcp://h"}, "url: it names no port, expected tcp://host:port"},
		{healthCheck, with{"url": "redis://h", "kind": "tcp"}, `url: found the scheme "redis", expected tcp`},
		{healthCheck, with{"url": "redis://h", "status": 200}, "status: it means nothing to kind redis"},
		{healthCheck, with{"url": "h:5"}, "url: "},
		{webhook, with{"provider": "github", "secret": "S", "headers": with{}, "prefix": "x"}, "prefix: it belongs to provider: hmac, github has its own"},
		{webhook, with{"provider": "github", "secret": "S", "headers": with{}, "tolerance": "5m"}, "tolerance: github signs no time"},
		{webhook, with{"provider": "hmac", "secret": "S", "headers": with{}, "tolerance": "5m"}, "tolerance: it needs `timestamp_header`"},
		{webhook, with{"provider": "slack", "secret": "S", "headers": with{}, "tolerance": "0s"}, "tolerance: found 0s, expected 1s to 24h0m0s"},
		{webhook, with{"provider": "slack", "secret": "S", "headers": with{}, "body": "x", "body_base64": "eA=="}, "body_base64: give it or `body`, not both"},
		{webhook, with{"provider": "slack", "secret": "S", "headers": with{}, "body_base64": "?"}, "body_base64: it is no base64"},
		{configSync, with{"source": "a.conf", "target": "/b"}, `source: found "a.conf", expected the whole path of a file`},
		{configSync, with{"source": "/a", "target": "redis://h"}, "key: a target of redis:// needs it"},
		{configSync, with{"source": "/a", "target": "redis://h/x", "key": "k"}, `target: found the database "x"`},
		{configSync, with{"source": "/a", "target": "redis://:pw@h/", "key": "k"}, "a password is given as `target_secret`"},
		{configSync, with{"source": "/a", "target": "redis://h/", "key": "belay:lock"}, "keys that begin with belay: are Belay's own"},
		{configSync, with{"source": "/a", "target": "/b", "key": "k"}, "key: it belongs to a target of redis://"},
		{configSync, with{"source": "/a", "target": "/b", "mode": "888"}, `mode: found "888"`},
		{configSync, with{"source": "/a", "target": "http://h/", "mode": "0600"}, "mode: it belongs to a target that is a file"},
		{configSync, with{"source": "/a", "target": "/b", "source_secret": "S"}, "source_secret: a file needs none"},
		{secretCheck, with{"kind": "x509"}, "address: x509 needs one of `address`, `file` and `secret`, found 0"},
		{secretCheck, with{"kind": "x509", "file": "/a", "secret": "S"}, "found 2"},
		{secretCheck, with{"kind": "x509", "address": "h"}, `address: found "h", expected host:port`},
		{secretCheck, with{"kind": "jwt"}, "secret: jwt needs the secret to check"},
		{secretCheck, with{"kind": "jwt", "secret": "S", "url": "http://h/"}, "url: it means nothing to jwt"},
		{secretCheck, with{"kind": "token", "secret": "S"}, "url: token needs what to ask with it"},
		{statusSync, with{"provider": "github", "repository": "a", "commit": "1234567", "state": "success"}, `repository: found "a", expected owner/name`},
		{statusSync, with{"provider": "gitlab", "repository": "a/../b", "commit": "1234567", "state": "success"}, "repository: found"},
		{statusSync, with{"provider": "gitlab", "repository": "a", "commit": "main", "state": "success"}, `commit: found "main", expected 7 to 64 hexadecimal digits`},
		{statusSync, with{"provider": "http", "commit": "1234567", "state": "success"}, "url: provider http needs it"},
		{statusSync, with{"provider": "github", "url": "http://h/", "repository": "a/b", "commit": "1234567", "state": "success"}, "url: it means nothing to github"},
	} {
		_, err := b.prepare(c.typ, c.with)
		require.ErrorContains(t, err, c.says, "%s %v", c.typ, c.with)
	}
}
