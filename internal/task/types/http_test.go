package types_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"belay.run/internal/task"
)

func TestHTTPSends(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"data":{"items":[{"state":"ready","n":5,"ok":true}]}}`)
	})
	b := setup(t)
	job := b.job(t, "http", with{
		"url": url + "/a?b=c", "method": "PUT", "body": `{"x":1}`, "headers": with{"X-A": "b", "Host": "shop.example"},
		"secret": "TOKEN", "status": []any{201, "3xx"}, "expect": "ready",
		"expect_json": with{"data.items.0.state": "ready", "data.items.0.n": "5", "data.items.0.ok": "true"},
	})
	require.Equal(t, strings.TrimPrefix(url, "http://"), job.Target())
	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	out, err := job.Run(t.Context(), task.Origin{TraceParent: trace, IdempotencyKey: "run/1"})
	require.NoError(t, err)
	requireFields(t, b.registry, "http", out)
	require.Equal(t, 201, out["status"])
	require.EqualValues(t, 54, out["bytes"])
	require.Equal(t, "PUT /a?b=c shop.example", got.Method+" "+got.RequestURI+" "+got.Host)
	require.JSONEq(t, `{"x":1}`, string(body))
	for name, value := range map[string]string{
		"X-A": "b", "Authorization": "Bearer " + password, "Content-Type": "application/json", "Traceparent": trace, "Idempotency-Key": "run/1",
	} {
		require.Equal(t, value, got.Header.Get(name), name)
	}
	require.Regexp(t, `^belay/\S`, got.Header.Get("User-Agent"))
}

func TestHTTPSendsNoIdempotencyKeyWhereNothingChanges(t *testing.T) {
	t.Parallel()
	var got http.Header
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	b := setup(t)
	_, err := b.job(t, "http", with{"url": url}).Run(t.Context(), task.Origin{IdempotencyKey: "k"})
	require.NoError(t, err)
	require.Empty(t, got.Values("Idempotency-Key"))
	// What is no header becomes one that is the same each time.
	_, err = b.job(t, "http", with{"url": url, "body": "x"}).Run(t.Context(), task.Origin{IdempotencyKey: "a\nb", TraceParent: "x\ny"})
	require.NoError(t, err)
	require.Regexp(t, `^[0-9a-f]{64}$`, got.Get("Idempotency-Key"))
	require.Empty(t, got.Values("Traceparent"))
}

func TestHTTPAuth(t *testing.T) {
	t.Parallel()
	var got http.Header
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	b := setup(t, func(b *testBundle) {
		b.Secrets = secrets{"USER": "ada:" + password, "KEY": "k", "EMPTY": " \n", "LINES": "a\nb"}
	})
	b.succeeds(t, "http", with{"url": url, "secret": "USER", "auth": "basic"})
	require.Equal(t, "Basic YWRhOmNvcnJlY3QtaG9yc2UtYmF0dGVyeQ==", got.Get("Authorization"))
	b.succeeds(t, "http", with{"url": url, "secret": "KEY", "auth": "header", "auth_header": "private-token"})
	require.Equal(t, "k", got.Get("Private-Token"))
	b.fails(t, "http", with{"url": url, "secret": "KEY", "auth": "basic"}, invalid(), "not user:password")
	b.fails(t, "http", with{"url": url, "secret": "EMPTY"}, invalid(), "the secret EMPTY is empty")
	b.fails(t, "http", with{"url": url, "secret": "LINES"}, invalid(), "what a header cannot")
	b.fails(t, "http", with{"url": url, "secret": "NONE"}, invalid(), "secret NONE: not found")
}

func TestHTTPStatusesOfFault(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		status := map[string]int{"/400": 400, "/404": 404, "/429": 429, "/500": 500, "/503": 503, "/302": 302, "/204": 204}[r.URL.Path]
		w.WriteHeader(status)
	})
	b := setup(t)
	for _, path := range []string{"/500", "/503", "/429"} {
		b.fails(t, "http", with{"url": url + path}, unwell(), "expected 2xx")
	}
	for _, path := range []string{"/400", "/404"} {
		b.fails(t, "http", with{"url": url + path}, unexpected(), "expected 2xx")
	}
	b.fails(t, "http", with{"url": url + "/302", "redirects": 0}, unexpected(), "answered 302 Found, expected 2xx")
	b.succeeds(t, "http", with{"url": url + "/204"})
	b.succeeds(t, "http", with{"url": url + "/503", "status": "500-503"})
	b.fails(t, "http", with{"url": url + "/204", "status": 200}, unexpected(), "answered 204 No Content, expected 200")
}

func TestHTTPExpects(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, map[string]string{"/json": `{"a":[{"b":null}],"c":{}}`, "/text": "all is well"}[r.URL.Path])
	})
	b := setup(t)
	b.succeeds(t, "http", with{"url": url + "/text", "expect": []string{"all", "well"}})
	b.succeeds(t, "http", with{"url": url + "/json", "expect_json": with{"a.0.b": "null"}})
	b.fails(t, "http", with{"url": url + "/text", "expect": "ill"}, unexpected(), `do not hold the expected "ill"`)
	b.fails(t, "http", with{"url": url + "/text", "expect_json": with{"a": "b"}}, unexpected(), "are no JSON")
	b.fails(t, "http", with{"url": url + "/json", "expect_json": with{"a.1.b": "x"}}, unexpected(), "has no 1, of the path a.1.b")
	b.fails(t, "http", with{"url": url + "/json", "expect_json": with{"a.-1": "x"}}, unexpected(), "has no -1")
	b.fails(t, "http", with{"url": url + "/json", "expect_json": with{"c": "x"}}, unexpected(), `c of its answer is not the expected "x"`)
}

// TestHTTPOfLyingTargets holds that each of them comes to a short, clear end.
func TestHTTPOfLyingTargets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const ok = "HTTP/1.1 200 OK\r\n"
	endless := strings.Repeat("x", 64<<10)
	for name, c := range map[string]struct {
		say  func(net.Conn)
		want want
		says string
	}{
		"closes at once":      {func(net.Conn) {}, unwell(), "GET http"},
		"closes after hello":  {says(""), unwell(), "GET http"},
		"garbage":             {says("\x16\x03\x01garbage\r\n\r\n"), unwell(), "malformed"},
		"its own secret back": {says("Bearer " + password + "\r\n\r\n"), unwell(), "***"},
		"closes in mid-body":  {says(ok + "Content-Length: 100\r\n\r\nhalf"), unwell(), "after 4 bytes of its body: unexpected EOF"},
		"broken chunks":       {says(ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), unwell(), "reading the answer of status 200"},
		"says it is huge":     {says(ok + "Content-Length: 1073741824\r\n\r\n"), tooMuch(), "larger than 1048576 bytes"},
		"is huge": {func(c net.Conn) {
			says(ok + "\r\n")(c)
			var err error
			for err == nil {
				_, err = c.Write([]byte(endless))
			}
		}, tooMuch(), "larger than 1048576 bytes"},
		"endless headers": {func(c net.Conn) {
			says(ok)(c)
			var err error
			for err == nil {
				_, err = c.Write([]byte("X-" + endless[:1000] + ": y\r\n"))
			}
		}, unwell(), "exceeded"},
		"two lengths": {says(ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n"), unwell(), "Content-Length"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b.fails(t, "http", with{"url": "http://" + speak(t, c.say), "secret": "TOKEN"}, c.want, c.says)
		})
	}
	t.Run("does not listen", func(t *testing.T) {
		t.Parallel()
		b.fails(t, "http", with{"url": "http://" + nobody(t)}, unwell(), "connection refused")
	})
	t.Run("does not encrypt", func(t *testing.T) {
		t.Parallel()
		b.fails(t, "http", with{"url": "https://" + speak(t, says(ok+"\r\n"))}, unwell(), "HTTPS")
	})
	t.Run("redirects in a circle", func(t *testing.T) {
		t.Parallel()
		url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) })
		b.fails(t, "http", with{"url": url + "/a"}, unexpected(), "more than 5 redirects")
	})
}

// TestHTTPEndsWithItsContext holds it for a target that says nothing, one that
// never ends its headers, and one that never ends its body.
func TestHTTPEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, text := range map[string]string{
		"silent": "", "in its headers": "HTTP/1.1 200 OK\r\nX-A: b\r\n", "in its body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := make(chan struct{}, 2)
			url := "http://" + speak(t, func(c net.Conn) {
				says(text)(c)
				said <- struct{}{}
				_, _ = c.Read(make([]byte, 1)) // until the other side has gone
			})
			enough := errors.New("the caller has had enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-said
				cancel(enough)
			}()
			_, err := b.job(t, "http", with{"url": url}).Run(ctx, task.Origin{})
			require.ErrorIs(t, err, enough)
			var failure *task.Failure
			require.NotErrorAs(t, err, &failure, "a cancel is nobody's failure")

			ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer stop()
			_, err = b.job(t, "http", with{"url": url}).Run(ctx, task.Origin{})
			requireFailure(t, err, tooLate(), "in time")
		})
	}
}

func TestHTTPRefusesItsOwnMachine(t *testing.T) {
	t.Parallel()
	asked := false
	url := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	b := setup(t, func(b *testBundle) { b.config.Guard.Allow = nil })
	for _, u := range []string{url, strings.Replace(url, "127.0.0.1", "localhost", 1), "http://169.254.169.254/latest", "http://[::ffff:127.0.0.1]:1/", "http://[64:ff9b::7f00:1]/"} {
		f := b.fails(t, "http", with{"url": u}, invalid(), "does not talk to unless")
		require.Contains(t, f, "GET http://")
	}
	require.False(t, asked)
}

func TestHTTPShowsNoSecretOfAURL(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	u := strings.Replace(url, "http://", "http://ada:"+password+"@", 1) + "/p?token=" + password + "&" + password
	f := setup(t).fails(t, "http", with{"url": u}, unexpected(), "/p?token=***&***")
	require.Contains(t, f, "http://***@127.0.0.1")
	require.NotContains(t, f, "ada")
	for _, wrong := range []string{"http://ada:" + password + "@h:99999/", "http://ada:" + password + "%zz@h/", "ftp://ada:" + password + "@h/"} {
		_, err := setup(t).prepare("http", with{"url": wrong})
		require.Error(t, err)
		require.NotContains(t, err.Error(), password)
	}
}
