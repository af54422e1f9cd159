package api

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"belay.run/docs"
	"belay.run/internal/config"
	"belay.run/internal/executor"
	"belay.run/internal/secret"
)

// secrets are a provider that knows some.
type secrets map[string]string

func (s secrets) Get(_ context.Context, name string) (secret.Value, error) {
	if text, ok := s[name]; ok {
		return secret.NewValue(name, text), nil
	}
	return secret.Value{}, secret.ErrNotFound
}

func (s secrets) Where(string) string { return "a test" }

const (
	shopToken = "shop-token-0123456789"
	opsToken  = "ops-token-0123456789"
)

func tokens(t *testing.T) *Tokens {
	t.Helper()
	s := secrets{"SHOP": shopToken + "\n", "OPS": opsToken}
	list, err := ReadTokens(t.Context(), s, []config.HTTPToken{{Tenant: "shop", Secret: "SHOP"}, {Tenant: config.AnyTenant, Secret: "OPS"}}, nil)
	require.NoError(t, err)
	return list
}

func TestATokenIsNeeded(t *testing.T) {
	t.Parallel()
	// Each is asked long after the last, or there would be too many.
	var asked atomic.Int64
	later := func() time.Time { return time.Unix(0, 0).Add(time.Duration(asked.Add(1)) * time.Hour) }
	b := setup(t, options{config: Config{Tokens: tokens(t), now: later}})
	for _, header := range []string{
		"", "Bearer", "Bearer ", "Basic " + shopToken, "Bearer " + shopToken[:len(shopToken)-1], "Bearer " + shopToken + "x",
		"Bearer " + strings.ToUpper(shopToken), shopToken, "Bearer SHOP", "Bearer *",
	} {
		for _, path := range []string{"/api/v1/executor/status", "/api/v1/openapi.yaml", "/api/v1/nowhere", batchPath + "x"} {
			a := b.ask(t, http.MethodGet, path, http.NoBody, "Authorization", header)
			problem(t, a, http.StatusUnauthorized, "unauthorized")
			require.Equal(t, `Bearer realm="belay"`, a.Header.Get("WWW-Authenticate"))
		}
		problem(t, b.task(t, `{"type":"noop"}`, "Authorization", header), http.StatusUnauthorized, "unauthorized")
		problem(t, b.batch(t, "", strings.NewReader(lines(1)), "Authorization", header), http.StatusUnauthorized, "unauthorized")
	}
	for _, header := range []string{"Bearer " + shopToken, "bearer  " + shopToken, "Bearer " + opsToken} {
		require.Equal(t, http.StatusOK, b.task(t, `{"type":"noop"}`, "Authorization", header).StatusCode)
	}
	require.Empty(t, b.batches.started())
}

// A token's tenant is the request's, whatever that says.
func TestATokenSaysWhoseARequestIs(t *testing.T) {
	t.Parallel()
	b := setup(t, options{config: Config{Tokens: tokens(t)}})
	b.gates.open()
	of := func(token, tenant string) string {
		require.Equal(t, http.StatusOK, b.task(t, `{"type":"gate","tenant":"`+tenant+`"}`, "Authorization", "Bearer "+token).StatusCode)
		return (<-b.gates.began).Tenant
	}
	require.Equal(t, "shop", of(shopToken, "bank"))
	require.Equal(t, "bank", of(opsToken, "bank"))
	require.Equal(t, "default", of(opsToken, ""))

	start := func(token string) string {
		a := b.batch(t, "?tenant=bank", strings.NewReader(lines(1)), "Authorization", "Bearer "+token, "Idempotency-Key", "k")
		require.Equal(t, http.StatusAccepted, a.StatusCode, a.text)
		return a.Header.Get("Location")
	}
	ops, shop := start(opsToken), start(shopToken)
	require.Equal(t, "shop", b.batches.started()[1].Tenant)
	require.Equal(t, "http:SHOP", b.batches.started()[1].Sender)
	read := func(token, path string) answer {
		return b.ask(t, http.MethodGet, path, http.NoBody, "Authorization", "Bearer "+token)
	}
	require.Equal(t, http.StatusOK, read(opsToken, ops).StatusCode)
	require.Equal(t, http.StatusOK, read(opsToken, shop).StatusCode)
	require.Equal(t, http.StatusOK, read(shopToken, shop).StatusCode)
	require.Equal(t, http.StatusOK, read(shopToken, batchPath+"k").StatusCode)
	problem(t, read(shopToken, ops), http.StatusNotFound, "not_found")
}

// notWell is an executor with a target that is not well.
type notWell struct{ Executor }

func (notWell) Status() executor.Status {
	return executor.Status{Status: "running", Executor: "coroutine", Open: []string{"bank.internal:443"}}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	b := setup(t, options{config: Config{Tokens: tokens(t)}})
	b.Open(Services{Executor: notWell{}})
	ask := func(token string) executor.Status {
		a := b.ask(t, http.MethodGet, "/api/v1/executor/status", http.NoBody, "Authorization", "Bearer "+token)
		require.Equal(t, http.StatusOK, a.StatusCode, a.text)
		return decode[executor.Status](t, a)
	}
	require.Equal(t, []string{"bank.internal:443"}, ask(opsToken).Open)
	require.Empty(t, ask(shopToken).Open, "the targets of others are not for one tenant")
	require.Equal(t, "coroutine", ask(shopToken).Executor)
}

func TestTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	s := secrets{"SHORT": "0123456789", "A": shopToken, "B": shopToken}
	for want, list := range map[string][]config.HTTPToken{
		"not found":             {{Tenant: "a", Secret: "NONE"}},
		"at least 16 bytes":     {{Tenant: "a", Secret: "SHORT"}},
		"one token for two ten": {{Tenant: "a", Secret: "A"}, {Tenant: "b", Secret: "B"}},
	} {
		_, err := ReadTokens(t.Context(), s, list, nil)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), shopToken)
	}
}

// A token that was replaced is not good any more, and one that cannot be read stays.
func TestTokensAreReadAgain(t *testing.T) {
	t.Parallel()
	s := secrets{"A": shopToken}
	list, err := ReadTokens(t.Context(), s, []config.HTTPToken{{Tenant: "a", Secret: "A"}}, nil)
	require.NoError(t, err)
	delete(s, "A")
	require.Error(t, list.read(t.Context()))
	_, ok := list.find(shopToken)
	require.True(t, ok)
	s["A"] = opsToken
	require.NoError(t, list.read(t.Context()))
	_, ok = list.find(shopToken)
	require.False(t, ok)
	_, ok = list.find(opsToken)
	require.True(t, ok)
}

// A web page cannot have the browser of somebody on this machine ask the worker.
func TestPagesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, options{config: Config{Loopback: true}})
	for _, host := range []string{"evil.example", "evil.example:9464", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example:1"} {
		problem(t, b.task(t, `{"type":"noop"}`, "Host", host), http.StatusForbidden, "forbidden")
		problem(t, b.ask(t, http.MethodGet, "/api/v1/executor/status", http.NoBody, "Host", host), http.StatusForbidden, "forbidden")
	}
	for _, header := range [][]string{{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}} {
		problem(t, b.task(t, `{"type":"noop"}`, header...), http.StatusForbidden, "forbidden")
	}
	for _, host := range []string{"localhost", "LOCALHOST:9464", "127.0.0.1:9464", "127.1.2.3", "[::1]:9464", "[::1]"} {
		require.Equal(t, http.StatusOK, b.task(t, `{"type":"noop"}`, "Host", host).StatusCode, host)
	}
	open := setup(t, options{config: Config{Tokens: tokens(t)}})
	require.Equal(t, http.StatusOK, open.task(t, `{"type":"noop"}`, "Host", "worker.example", "Authorization", "Bearer "+opsToken).StatusCode)
}

func TestOtherPathsAndMethods(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	for path, want := range map[string]string{
		"/api/v1/tasks": "POST", "/api/v1/batches": "POST", batchPath + "x": "GET, HEAD",
		"/api/v1/executor/status": "GET, HEAD", "/api/v1/openapi.yaml": "GET, HEAD",
		batchPath + "x/results": "GET, HEAD", batchPath + "x/cancel": "POST", batchPath + "a/b/batch/x/cancel": "GET, HEAD",
	} {
		a := b.ask(t, http.MethodDelete, path, http.NoBody)
		problem(t, a, http.StatusMethodNotAllowed, "method_not_allowed")
		require.Equal(t, want, a.Header.Get("Allow"))
	}
	problem(t, b.ask(t, http.MethodGet, "/api/v2/tasks", http.NoBody), http.StatusNotFound, "not_found")
	a := b.ask(t, http.MethodGet, "/api/v1/openapi.yaml", http.NoBody)
	require.Equal(t, "application/yaml", a.Header.Get("Content-Type"))
	require.Contains(t, a.text, "operationId: runTask")
}

// The document has the paths that are served, and no others. What they answer is
// held to it in dev/e2e.
func TestTheDocumentHasWhatIsServed(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]any `yaml:"paths"`
	}
	require.NoError(t, yaml.Unmarshal(docs.OpenAPI(), &doc))
	documented := map[string]string{}
	for path, methods := range doc.Paths {
		for method := range methods {
			if strings.HasPrefix(path, "/api/") {
				documented[path] = strings.ToUpper(method)
			}
		}
	}
	served := map[string]string{}
	for path, methods := range New(Config{}).methods {
		method, _, _ := strings.Cut(methods, ",")
		served[strings.ReplaceAll(path, "...}", "}")] = method
	}
	require.Equal(t, documented, served)
}
