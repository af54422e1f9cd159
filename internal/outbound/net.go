// Package outbound is how light tasks reach the world: one shared, tuned HTTP
// transport, and a dialer, both behind a guard that refuses the addresses of the
// worker's own machine and of its cloud's metadata.
package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"belay.run/internal/nofile"
)

const (
	// ConcurrencyDefault is how many connections to one host there may be.
	ConcurrencyDefault = 1024

	dialTimeout = 10 * time.Second
	idleTimeout = 90 * time.Second
	// headerBytes bounds the headers of an answer, bufferBytes is what each
	// connection costs twice: ten thousand of them are usual.
	headerBytes = 64 << 10
	bufferBytes = 1 << 10
)

// ErrDowngrade says that a redirect would leave an encrypted connection.
var ErrDowngrade = errors.New("redirected from https to http, which is not followed")

// Config is how the world is reached.
type Config struct {
	Guard Guard
	// Concurrency is how many connections to one host there may be, idle ones
	// among them. It is to be at least what is in flight at once: with fewer
	// tasks wait for connections, without a bound more are dialed than are used.
	// Defaults to ConcurrencyDefault.
	Concurrency int
	// Files is how many connections may be open at once, to all hosts, by the files
	// of the process: where there are as many, idle ones are closed before another
	// is dialed. Defaults to [nofile.Room].
	Files int
	// Proxy is what HTTP goes through, nil for none; the variables HTTP_PROXY and
	// so on do not count. The proxy resolves names, and so the guard holds for the
	// proxy's address and for addresses that a URL names, not for what names
	// mean to the proxy.
	Proxy *url.URL
	// Roots are the authorities that are trusted. Defaults to the system's.
	Roots *x509.CertPool
	// Now is the clock by which certificates are valid. Defaults to time.Now.
	Now func() time.Time
}

// Net reaches the world. It is safe for concurrent use.
type Net struct {
	config    Config
	dialer    net.Dialer
	transport atomic.Pointer[http.Transport]
	open      atomic.Int64 // connections
}

// New returns a Net. It is to be closed in the end.
func New(c Config) *Net {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Files <= 0 {
		c.Files = nofile.Room()
	}
	n := &Net{config: c, dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: c.Guard.Control}}
	n.SetConcurrency(c.Concurrency)
	return n
}

// SetConcurrency changes how many connections to one host there may be. What is
// under way ends on the connections that it has.
func (n *Net) SetConcurrency(most int) {
	if most <= 0 {
		most = ConcurrencyDefault
	}
	if t := n.transport.Load(); t != nil && t.MaxConnsPerHost == most {
		return
	}
	old := n.transport.Swap(&http.Transport{
		Proxy:       http.ProxyURL(n.config.Proxy),
		DialContext: n.dial,
		// Of HTTP/2 there is none: that it puts all requests on one connection is
		// no gain where many hosts are asked one thing each.
		TLSClientConfig:        n.TLS(""),
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConns:           most,
		MaxIdleConnsPerHost:    most,
		MaxConnsPerHost:        most,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true,
		MaxResponseHeaderBytes: headerBytes,
		ReadBufferSize:         bufferBytes,
		WriteBufferSize:        bufferBytes,
	})
	if old != nil {
		old.CloseIdleConnections()
	}
}

// Close closes the connections that are idle.
func (n *Net) Close() { n.transport.Load().CloseIdleConnections() }

// DialContext connects to an address.
func (n *Net) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return n.dial(ctx, network, address)
}

// Dial connects to host:port, encrypted where secure says so.
func (n *Net) Dial(ctx context.Context, network, address string, secure bool) (net.Conn, error) {
	conn, err := n.DialContext(ctx, network, address)
	if err != nil || !secure {
		return conn, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	encrypted := tls.Client(conn, n.TLS(host))
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // what went wrong before says more
		return nil, err
	}
	return encrypted, nil
}

// TLS is how connections are encrypted: TLS 1.2 or newer, and verified.
func (n *Net) TLS(serverName string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: n.config.Roots, ServerName: serverName, Time: n.config.Now}
}

// RoundTrip sends a request.
func (n *Net) RoundTrip(r *http.Request) (*http.Response, error) {
	if n.config.Proxy != nil {
		if err := n.config.Guard.checkLiteral(r.URL.Hostname()); err != nil {
			return nil, err
		}
	}
	return n.transport.Load().RoundTrip(r)
}

// Private is a header that goes to no other host than the first.
type Private struct {
	// Header is its name; empty: there is none.
	Header string
	// Goes says whether it may be sent where a redirect leads to: the first host
	// may be redirected from, too, to another of its ports. Nil: it may.
	Goes func(to *url.URL) bool
}

func (p Private) follows(first, next *url.URL) bool {
	return next.Host == first.Host && (p.Goes == nil || p.Goes(next))
}

// Do sends a request and follows so many redirects; with none, the redirect is
// the answer. Again is called where it is sent once more, on another connection, so
// that the target may have it twice; nil: nobody minds.
func (n *Net) Do(r *http.Request, redirects int, private Private, again func()) (*http.Response, error) {
	on := sending{again: again}
	if again != nil {
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: on.got}))
	}
	client := http.Client{Transport: n, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		on.moved()
		last := via[len(via)-1]
		switch {
		case redirects == 0:
			return http.ErrUseLastResponse
		case len(via) > redirects:
			return &RedirectsError{Followed: redirects}
		case last.URL.Scheme == "https" && next.URL.Scheme != "https":
			return ErrDowngrade
		}
		// It would tell the next host the whole address of the last.
		next.Header.Del("Referer")
		// After a redirect by path or //host the client would keep what stands in
		// the header Host for the first host, and send it to the next.
		if next.URL.Host != via[0].URL.Host {
			next.Host = ""
		}
		if !private.follows(via[0].URL, next.URL) {
			next.Header.Del(private.Header)
		}
		return nil
	}}
	return client.Do(r) //nolint:gosec // where it goes is the guard's
}

// RedirectsError says that there were more redirects than are followed.
type RedirectsError struct {
	Followed int
}

// Error says how many were followed.
func (e *RedirectsError) Error() string {
	return fmt.Sprintf("more than %d redirects, perhaps in a circle", e.Followed)
}
