package types_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"belay.run/internal/redistest"
	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// runFor runs a task of a batch or a request of the tenant shop.
func (b *testBundle) runFor(t *testing.T, typ string, w with) error {
	t.Helper()
	_, err := b.job(t, typ, w).Run(t.Context(), task.Origin{Tenant: "shop"})
	return err
}

func granting(grants ...secret.Grant) func(*testBundle) {
	return func(b *testBundle) { b.grants = grants }
}

// user is a task that uses a secret.
type user struct {
	typ  string
	with with
}

// users are tasks that use secrets, at a server and a Redis.
func users(t *testing.T, b *testBundle, server, redis string) map[string]user {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"exp": time.Now().Add(time.Hour).Unix()}).SignedString([]byte(password))
	require.NoError(t, err)
	known, ok := b.Secrets.(secrets)
	require.True(t, ok)
	known["JWT"] = token
	file := t.TempDir() + "/file"
	b.Files = "/"
	return map[string]user{
		"Bearer": {"http", with{"url": server, "secret": "TOKEN"}},
		"Header": {"http", with{"url": server, "secret": "TOKEN", "auth": "header", "auth_header": "X-Token"}},
		"Health": {"health_check", with{"url": server, "secret": "TOKEN"}},
		"Redis":  {"health_check", with{"url": redis, "secret": "TOKEN"}},
		"GRPC":   {"health_check", with{"url": strings.Replace(server, "http", "grpc", 1), "secret": "TOKEN"}},
		"Status": {"status_sync", with{"provider": "http", "url": server, "commit": "0123456789", "state": "success", "secret": "TOKEN"}},
		"Token":  {"secret_check", with{"kind": "token", "url": server, "secret": "TOKEN"}},
		"JWT":    {"secret_check", with{"kind": "jwt", "secret": "JWT"}},
		"JWTKey": {"secret_check", with{"kind": "jwt", "secret": "JWT", "key": "TOKEN"}},
		"X509":   {"secret_check", with{"kind": "x509", "secret": "TOKEN"}},
		"Webhook": {"webhook_verify", with{
			"provider": "gitlab", "secret": "TOKEN", "headers": with{"X-Gitlab-Token": password}, "body": "x",
		}},
		"Source": {"config_sync", with{"source": server, "target": file, "source_secret": "TOKEN"}},
		"Target": {"config_sync", with{"source": server + "/open", "target": server, "target_secret": "TOKEN"}},
		"TargetRedis": {"config_sync", with{
			"source": server + "/open", "target": redis, "key": "k", "target_secret": "TOKEN",
		}},
	}
}

// asked is a server that tells of requests which are not to /open.
func asked(t *testing.T) (address string, requests chan string) {
	t.Helper()
	requests = make(chan string, 100)
	return serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/open" {
			requests <- r.Header.Get("Authorization") + r.Header.Get("X-Token")
		}
	}), requests
}

// No type of task uses a secret that is not granted to its tenant, and none that
// is sends it elsewhere than granted. The secrets that no request carries are
// those of types that have no server.
func TestSecretsAreGrantedToTasks(t *testing.T) {
	t.Parallel()
	server, requests := asked(t)
	redis := redistest.Start(t).URL
	for name, grants := range map[string][]secret.Grant{
		"Nothing":    nil,
		"ToAnother":  {{Tenant: "bank", Secret: secret.Any}},
		"Elsewhere":  {{Tenant: "shop", Secret: secret.Any, Host: "api.example.com"}, {Tenant: "bank", Secret: secret.Any}},
		"OtherPort":  {{Tenant: "shop", Secret: secret.Any, Host: "127.0.0.1", Port: "1"}},
		"OnlyToLook": {{Tenant: "shop", Secret: secret.Any, Host: secret.Nowhere}},
	} {
		b := setup(t, granting(grants...))
		for typ, u := range users(t, b, server, redis) {
			local := typ == "JWT" || typ == "JWTKey" || typ == "X509" || typ == "Webhook"
			if local && name != "Nothing" && name != "ToAnother" {
				continue // it is sent nowhere
			}
			b := setup(t, granting(grants...), func(c *testBundle) { c.Secrets, c.Files = b.Secrets, b.Files })
			err := b.runFor(t, u.typ, u.with)
			says := requireFailure(t, err, invalid(), "light_secrets")
			require.Contains(t, says, "the tenant shop may not ", name, typ)
		}
		require.Empty(t, requests, name)
	}
}

func TestSecretsThatAreGrantedAreUsed(t *testing.T) {
	t.Parallel()
	server, requests := asked(t)
	at, err := url.Parse(server)
	require.NoError(t, err)
	for name, grant := range map[string]secret.Grant{
		"Anywhere": {Tenant: "shop", Secret: "TOKEN"},
		"AllHosts": {Tenant: secret.Any, Secret: secret.Any},
		"Host":     {Tenant: "shop", Secret: "TOKEN", Host: "127.0.0.1"},
		"Port":     {Tenant: "shop", Secret: "TOKEN", Host: "127.0.0.1", Port: at.Port()},
	} {
		b := setup(t, granting(grant))
		for _, typ := range []string{"Bearer", "Header", "Health", "Status", "Token", "Webhook"} {
			u := users(t, b, server, "redis://127.0.0.1:1")[typ]
			require.NoError(t, b.runFor(t, u.typ, u.with), name, typ)
			if typ != "Webhook" {
				require.Contains(t, <-requests, password)
			}
		}
	}
}

// A step may use what it lists, whatever is granted, and only that.
func TestSecretsOfSteps(t *testing.T) {
	t.Parallel()
	server, requests := asked(t)
	b := setup(t, granting())
	job := b.job(t, "http", with{"url": server, "secret": "TOKEN"})
	_, err := job.Run(t.Context(), task.Origin{Tenant: "shop", Listed: []string{"TOKEN"}})
	require.NoError(t, err)
	require.Contains(t, <-requests, password)
	_, err = b.job(t, "http", with{"url": server, "secret": "TOKEN"}).Run(t.Context(), task.Origin{Tenant: "shop", Listed: []string{}})
	requireFailure(t, err, invalid(), "the step does not list the secret TOKEN")

	// Nobody can write that he is a step.
	var o task.Origin
	require.NoError(t, json.Unmarshal([]byte(`{"tenant":"shop","Listed":["TOKEN"],"listed":["TOKEN"]}`), &o))
	require.Nil(t, o.Listed)
}

// A secret that is for one host follows no redirect to another, nor to another
// port of the same where it is for one.
func TestSecretsStayWithTheirHost(t *testing.T) {
	t.Parallel()
	other, requests := asked(t)
	first := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusFound) })
	at, err := url.Parse(first)
	require.NoError(t, err)
	for _, grant := range []secret.Grant{{Tenant: "shop", Secret: "TOKEN", Host: "127.0.0.1", Port: at.Port()}, {Tenant: "shop", Secret: "TOKEN"}} {
		b := setup(t, granting(grant))
		for _, auth := range []with{{}, {"auth": "header", "auth_header": "X-Token"}} {
			w := with{"url": first, "secret": "TOKEN"}
			maps.Copy(w, auth)
			require.NoError(t, b.runFor(t, "http", w))
			require.Empty(t, <-requests)
		}
	}
}

// Behind one address there may be many hosts; the header Host says which is meant.
func TestSecretsAreNotSentToAnotherHostBehindAnAddress(t *testing.T) {
	t.Parallel()
	server, requests := asked(t)
	b := setup(t, granting(secret.Grant{Tenant: "shop", Secret: "TOKEN", Host: "127.0.0.1"}))
	err := b.runFor(t, "http", with{"url": server, "secret": "TOKEN", "headers": with{"Host": "evil.example"}})
	at, err2 := url.Parse(server)
	require.NoError(t, err2)
	requireFailure(t, err, invalid(), "may not send the secret TOKEN to evil.example:"+at.Port())
	require.Empty(t, requests)
	require.NoError(t, b.runFor(t, "http", with{"url": server, "secret": "TOKEN", "headers": with{"Host": "127.0.0.1:80"}}))
	require.NoError(t, b.runFor(t, "http", with{"url": server, "headers": with{"Host": "evil.example"}}), "it carries no secret")
	b = setup(t, granting(secret.Grant{Tenant: "shop", Secret: "TOKEN"}))
	require.NoError(t, b.runFor(t, "http", with{"url": server, "secret": "TOKEN", "headers": with{"Host": "shop.example"}}))
	// Without a port the header means that of the connection.
	to := func(host string) secret.Grant {
		return secret.Grant{Tenant: "shop", Secret: "TOKEN", Host: host, Port: at.Port()}
	}
	b = setup(t, granting(to("127.0.0.1"), to("shop.example")))
	for _, host := range []string{"shop.example", "SHOP.example.", "shop.example:" + at.Port()} {
		require.NoError(t, b.runFor(t, "http", with{"url": server, "secret": "TOKEN", "headers": with{"Host": host}}), host)
	}
	err = b.runFor(t, "http", with{"url": server, "secret": "TOKEN", "headers": with{"Host": "shop.example:80"}})
	requireFailure(t, err, invalid(), "may not send the secret TOKEN to shop.example:80")
}

// However a target is written, it is one for limits, circuits and grants.
func TestATargetHasOneName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for want, ways := range map[string][]user{
		"shop.example:443": {
			{"http", with{"url": "https://Shop.Example./x"}},
			{"http", with{"url": "https://shop.example:0443"}},
			{"health_check", with{"url": "tcp://SHOP.example.:443"}},
			{"secret_check", with{"kind": "x509", "address": "Shop.example.:443"}},
		},
		"shop.example:6379":       {{"health_check", with{"url": "redis://shop.example."}}},
		"xn--mnchen-3ya.test:443": {{"health_check", with{"url": "https://München.test"}}, {"health_check", with{"url": "grpcs://xn--mnchen-3ya.TEST"}}},
	} {
		for _, way := range ways {
			require.Equal(t, want, b.job(t, way.typ, way.with).Target(), way.with)
		}
	}
}

// What a task sends in headers of its own goes where it did before.
func TestHeadersWithoutASecretFollowARedirectOnTheirHost(t *testing.T) {
	t.Parallel()
	got := make(chan string, 2)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/next", http.StatusFound)
		}
	})
	b := setup(t, granting())
	require.NoError(t, b.runFor(t, "http", with{"url": server + "/", "headers": with{"Authorization": "Basic eA=="}}))
	require.Equal(t, []string{"Basic eA==", "Basic eA=="}, []string{<-got, <-got})
}

func TestRegistryTellsTheSecretsOfTasks(t *testing.T) {
	t.Parallel()
	r := setup(t).registry
	of := func(typ, w string) []string { return r.Secrets(task.Task{Type: typ, With: json.RawMessage(w)}) }
	require.Equal(t, []string{"A"}, of("http", `{"url":"http://a","s\u0065cret":"A"}`))
	require.Equal(t, []string{"A", "B"}, of("config_sync", `{"target_secret":"B","source_secret":"A"}`))
	require.Equal(t, []string{"A", "B"}, of("secret_check", `{"secret":"A","key":"B"}`))
	require.Empty(t, of("config_sync", `{"key":"B"}`), "there it is no secret")
	for _, none := range []string{"", "{", "[]", `{"secret":1}`, `{"secret":""}`, `{"SECRET":"A"}`} {
		require.Empty(t, of("http", none))
	}
	require.Empty(t, of("noop", `{"secret":"A"}`))
	require.Empty(t, of("none", `{"secret":"A"}`))
}
