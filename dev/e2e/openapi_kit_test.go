package e2e_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"

	"belay.run/dev/e2e"
	"belay.run/docs"
)

// contract is the document of what workers answer, and what of it was seen.
type contract struct {
	doc    *openapi3.T
	router routers.Router
	seen   map[string]bool
}

func newContract(t *testing.T) *contract {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(docs.OpenAPI())
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	doc.Servers = nil // requests go to any worker
	for _, item := range doc.Paths.Map() {
		item.Servers = nil
	}
	router, err := gorillamux.NewRouter(doc)
	require.NoError(t, err)
	for _, lines := range []string{"application/x-ndjson", "application/jsonl", "application/yaml"} {
		openapi3filter.RegisterBodyDecoder(lines, openapi3filter.PlainBodyDecoder)
	}
	return &contract{doc: doc, router: router, seen: map[string]bool{}}
}

// exchange is a request, and what is expected of its answer.
type exchange struct {
	method, path string
	body         string
	kind         string // of the body; "" is JSON, where there is one
	headers      []string
	status       int
	// wrong says that the document does not allow the request.
	wrong bool
}

// ask makes a request and holds it and its answer to the document.
func (c *contract) ask(t *testing.T, url string, x exchange) string {
	t.Helper()
	req := c.request(t, url, x)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: e2e.Patience}
	resp, err := client.Do(req)
	require.NoError(t, err)
	return c.hold(t, x, c.request(t, url, x), resp)
}

func (*contract) request(t *testing.T, url string, x exchange) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), x.method, url+x.path, strings.NewReader(x.body))
	require.NoError(t, err)
	if x.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if x.kind != "" {
		req.Header.Set("Content-Type", x.kind)
	}
	for i := 0; i < len(x.headers); i += 2 {
		if x.headers[i] == "Host" {
			req.Host = x.headers[i+1]
			continue
		}
		req.Header.Set(x.headers[i], x.headers[i+1])
	}
	return req
}

// hold holds a request and its answer to the document.
func (c *contract) hold(t *testing.T, x exchange, req *http.Request, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, x.status, resp.StatusCode, "%s %s: %s", x.method, x.path, text)
	operation := c.operation(t, x, req)
	in := &openapi3filter.RequestValidationInput{
		Request: req, Route: operation.route, PathParams: operation.params,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	if operation.method == x.method {
		err = openapi3filter.ValidateRequest(t.Context(), in)
		if x.wrong {
			require.Error(t, err, "the document allows %s %s", x.method, x.path)
		} else {
			require.NoError(t, err, "the document does not allow %s %s", x.method, x.path)
		}
	}
	require.NoError(t, openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header,
		Body: io.NopCloser(bytes.NewReader(text)), Options: in.Options,
	}), "%s %s answers %d: %s", x.method, x.path, resp.StatusCode, text)
	c.seen[fmt.Sprintf("%s %d", operation.route.Operation.OperationID, resp.StatusCode)] = true
	return string(text)
}

// operation is what a request asks for: that of its path, where it uses a method
// that there is not.
type operation struct {
	route  *routers.Route
	params map[string]string
	method string
}

func (c *contract) operation(t *testing.T, x exchange, req *http.Request) operation {
	t.Helper()
	for _, method := range []string{x.method, http.MethodGet, http.MethodPost} {
		as := req.Clone(t.Context())
		as.Method = method
		if route, params, err := c.router.FindRoute(as); err == nil {
			return operation{route, params, method}
		}
	}
	require.Fail(t, "the document does not know "+x.path)
	return operation{}
}

// unseen are the answers that the document lists and no worker gave.
func (c *contract) unseen() []string {
	all := map[string]bool{}
	for _, item := range c.doc.Paths.Map() {
		for _, op := range item.Operations() {
			for status := range op.Responses.Map() {
				if name := op.OperationID + " " + status; !c.seen[name] {
					all[name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// dial sends what no client of Go's would, and leaves the connection open.
func dial(t *testing.T, url, text string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	return conn
}

// hear holds to the document what is answered on a connection, to what was to be
// that request.
func (c *contract) hear(t *testing.T, url string, x exchange, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(e2e.Patience)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	c.hold(t, x, c.request(t, url, x), resp)
	require.NoError(t, resp.Body.Close())
}
