package types

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"belay.run/internal/outbound"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/task"
)

const (
	// bodyUsual is how much of an answer is read, bodyMost how much may be asked for.
	bodyUsual = 1 << 20
	bodyMost  = 64 << 20
	// redirectsUsual is how many redirects are followed.
	redirectsUsual = 5
)

// call is one request over HTTP.
type call struct {
	method    string
	url       *url.URL
	header    http.Header
	body      []byte
	auth      auth
	redirects int
	// most bounds the answer's body; keep says that it is wanted and not only
	// counted.
	most int64
	keep bool
}

// answer is what came back, whole.
type answer struct {
	status int
	header http.Header
	body   []byte
	bytes  int64
	took   time.Duration
	// hidden is what is not to be shown of it.
	hidden []secret.Value
}

func (c call) String() string { return c.method + " " + shown(c.url) }

// do sends the request and reads the whole answer, so that its connection can be
// used again. Its error is a [*task.Failure], or that of a ctx that was cancelled.
func (c call) do(ctx context.Context, t Tools, o task.Origin) (answer, error) {
	req, hidden, err := c.request(ctx, t, o)
	if err != nil {
		return answer{}, err
	}
	a := answer{hidden: hidden}
	began := t.Now()
	end := c.trace(req)
	defer func() { end(a.status) }()
	resp, err := t.Net.Do(req, c.redirects, outbound.Private{
		Header: c.auth.header,
		Goes: func(to *url.URL) bool {
			return c.auth.secret == "" || t.Secrets.Check(use(o, c.auth.secret, httpAddress(to))) == nil
		},
	}, func() { task.Again(ctx) })
	if err != nil {
		return a, failure(ctx, c.String(), err, hidden...)
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is of no use
	a.status, a.header = resp.StatusCode, resp.Header
	if err := c.read(resp, &a); err != nil {
		if _, ok := err.(*task.Failure); ok { //nolint:errorlint // as read made it
			return a, err
		}
		return a, failure(ctx, fmt.Sprintf("%s: reading the answer of status %d after %d bytes of its body", c, a.status, a.bytes), err, hidden...)
	}
	a.took = t.Now().Sub(began)
	return a, nil
}

func (c call) request(ctx context.Context, t Tools, o task.Origin) (*http.Request, []secret.Value, error) {
	h := c.header.Clone()
	if h == nil {
		h = make(http.Header, 3)
	}
	addContext(h, c.method, o)
	var hidden []secret.Value
	if c.auth.secret != "" {
		value, v, err := c.auth.value(ctx, t, o, httpAddress(c.url))
		if err == nil {
			err = c.checkHost(t, o, h.Get("Host"))
		}
		if err != nil {
			return nil, nil, err
		}
		h[c.auth.header], hidden = []string{value}, []secret.Value{v}
	}
	req := (&http.Request{
		Method: c.method, URL: c.url, Host: c.url.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if host := h.Get("Host"); host != "" {
		req.Host = host
		delete(h, "Host")
	}
	if c.body != nil {
		req.ContentLength = int64(len(c.body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }
		req.Body = io.NopCloser(bytes.NewReader(c.body))
	}
	return req, hidden, nil
}

// checkHost holds the header Host to where the secret may go: behind one address
// there may be the hosts of many, and the header decides which one hears it.
func (c call) checkHost(t Tools, o task.Origin, host string) error {
	if host == "" {
		return nil
	}
	to := &url.URL{Scheme: c.url.Scheme, Host: host}
	if port := c.url.Port(); to.Port() == "" && port != "" {
		to.Host = net.JoinHostPort(to.Hostname(), port) // that is where it is heard
	}
	if err := t.Secrets.Check(use(o, c.auth.secret, httpAddress(to))); err != nil {
		return task.Failf(run.TriggerInvalid, "%s: %s", c.auth.param, err)
	}
	return nil
}

// read takes the body in, or counts it.
func (c call) read(resp *http.Response, a *answer) error {
	tooLarge := func() error {
		return task.Failf(run.TriggerLimitExceeded, "%s: its answer is larger than %d bytes", c, c.most)
	}
	if c.method != http.MethodHead && resp.ContentLength > c.most {
		return tooLarge()
	}
	var kept bytes.Buffer
	to := io.Discard
	if c.keep {
		to = &kept
	}
	var err error
	a.bytes, err = io.Copy(to, io.LimitReader(resp.Body, c.most+1))
	switch {
	case err != nil:
		return err
	case a.bytes > c.most:
		return tooLarge()
	}
	a.body = kept.Bytes()
	return nil
}

// expected returns a failure unless the answer's status is one of those wanted.
func (c call) expected(a answer, want statuses) error {
	if want.has(a.status) {
		return nil
	}
	text := fmt.Sprintf("%s: answered %d %s, expected %s", c, a.status, http.StatusText(a.status), want)
	text = strings.ReplaceAll(text, "  ", " ") // a status of no name
	text = strings.ReplaceAll(text, " ,", ",")
	if a.status >= 500 || a.status == http.StatusTooManyRequests {
		return task.Faultf("%s", text)
	}
	return task.Failf(run.TriggerExitCode, "%s", text)
}
