package outbound_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"belay.run/internal/outbound"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGuardRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "0.1.2.3", "::", "169.254.1.1", "fe80::1", "fe80::1%eth0", "224.0.0.1", "ff02::1",
		"255.255.255.255", "240.0.0.1", "169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192",
		"fd00:ec2::254", "fd20:ce::254",
		"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1",
		"::ffff:0:127.0.0.1", "2002:7f00:1::1", "2002:a9fe:a9fe::", "2001:0:1::1",
	} {
		err := outbound.Guard{}.Check(netip.MustParseAddr(text))
		var refused *outbound.RefusedError
		require.ErrorAs(t, err, &refused, text)
	}
}

func TestGuardLetsPass(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "8.8.8.8", "fd12::1", "2606:4700::1111",
		"::ffff:10.0.0.1", "64:ff9b::8.8.8.8", "2002:0808:0808::1",
	} {
		require.NoError(t, outbound.Guard{}.Check(netip.MustParseAddr(text)), text)
	}
}

func TestGuardAllowsWhatItIsTold(t *testing.T) {
	t.Parallel()
	g := outbound.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/30")}}
	for _, text := range []string{"127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1"} {
		require.NoError(t, g.Check(netip.MustParseAddr(text)), text)
	}
	require.Error(t, g.Check(netip.MustParseAddr("127.0.0.9")))
	require.Error(t, g.Check(netip.MustParseAddr("::1")))
}

// allowing is a Net that talks to these networks too.
func allowing(t *testing.T, c outbound.Config, prefixes ...string) *outbound.Net {
	t.Helper()
	for _, p := range prefixes {
		c.Guard.Allow = append(c.Guard.Allow, netip.MustParsePrefix(p))
	}
	n := outbound.New(c)
	t.Cleanup(n.Close)
	return n
}

// get returns the answer's status.
func get(t *testing.T, n *outbound.Net, url string, redirects int, headers ...string) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := n.Do(req, redirects, outbound.Private{Header: "X-Token"}, nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// TestNamesAreCheckedWhenTheyAreDialed holds that a name is of no help, whatever
// it means.
func TestNamesAreCheckedWhenTheyAreDialed(t *testing.T) {
	t.Parallel()
	var asked bool
	s := serve(t, func(http.ResponseWriter, *http.Request) { asked = true })
	n := allowing(t, outbound.Config{})
	_, err := get(t, n, strings.Replace(s.URL, "127.0.0.1", "localhost", 1), 0)
	var refused *outbound.RefusedError
	require.ErrorAs(t, err, &refused)
	require.False(t, asked)
	_, err = n.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.ErrorAs(t, err, &refused)
}

func TestRedirectsAreCheckedToo(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.2:1/latest/meta-data", http.StatusFound)
	})
	_, err := get(t, allowing(t, outbound.Config{}, "127.0.0.1/32"), s.URL, 5)
	var refused *outbound.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "127.0.0.2", refused.Addr.String())
}

// The header Host is for the first host: after a redirect by //host or by path the
// client of net/http would send it to the next.
func TestHostStaysWithItsHost(t *testing.T) {
	t.Parallel()
	got := make(chan string, 3)
	second := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Host
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/next", http.StatusFound)
		}
	})
	first := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Host
		w.Header().Set("Location", strings.TrimPrefix(second.URL, "http:")+"/")
		w.WriteHeader(http.StatusFound)
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, first.URL, nil)
	require.NoError(t, err)
	r.Host = "shop.example"
	resp, err := allowing(t, outbound.Config{}, "127.0.0.0/8").Do(r, 5, outbound.Private{}, nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	next := strings.TrimPrefix(second.URL, "http://")
	require.Equal(t, []string{"shop.example", next, next}, []string{<-got, <-got, <-got})
}

func TestRedirectsEnd(t *testing.T) {
	t.Parallel()
	asked := 0
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/again", http.StatusFound)
	})
	n := allowing(t, outbound.Config{}, "127.0.0.0/8")
	_, err := get(t, n, s.URL, 3)
	var many *outbound.RedirectsError
	require.ErrorAs(t, err, &many)
	require.Equal(t, 4, asked)
	status, err := get(t, n, s.URL, 0)
	require.NoError(t, err)
	require.Equal(t, http.StatusFound, status)
}

func TestPrivateHeadersStayWithTheFirstHost(t *testing.T) {
	t.Parallel()
	var other http.Header
	second := serve(t, func(_ http.ResponseWriter, r *http.Request) { other = r.Header })
	var same http.Header
	first := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/same?secret=1", http.StatusFound)
			return
		}
		same = r.Header
		http.Redirect(w, r, second.URL, http.StatusFound)
	})
	_, err := get(t, allowing(t, outbound.Config{}, "127.0.0.0/8"), first.URL+"/", 5, "X-Token", "hunter2", "X-Plain", "yes")
	require.NoError(t, err)
	require.Equal(t, "hunter2", same.Get("X-Token"))
	require.Empty(t, other.Get("X-Token"))
	require.Empty(t, other.Get("Referer"), "it holds the query")
	require.Equal(t, "yes", other.Get("X-Plain"))
}

func TestRedirectsFromHTTPSToHTTPAreNotFollowed(t *testing.T) {
	t.Parallel()
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	s := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	t.Cleanup(s.Close)
	transport, ok := s.Client().Transport.(*http.Transport)
	require.True(t, ok)
	_, err := get(t, allowing(t, outbound.Config{Roots: transport.TLSClientConfig.RootCAs}, "127.0.0.0/8"), s.URL, 5)
	require.ErrorIs(t, err, outbound.ErrDowngrade)
	_, err = get(t, allowing(t, outbound.Config{}, "127.0.0.0/8"), s.URL, 5)
	require.ErrorContains(t, err, "certificate", "of an authority that is not trusted")
}

// TestProxyIsNotAskedForRefusedAddresses holds that an address in a URL is
// checked where another would dial it.
func TestProxyIsNotAskedForRefusedAddresses(t *testing.T) {
	t.Parallel()
	var asked []string
	proxy := serve(t, func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.URL.Host) })
	at, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	n := allowing(t, outbound.Config{Proxy: at}, "127.0.0.1/32")
	for _, u := range []string{"http://169.254.169.254/", "http://[::1]/", "http://localhost/", "http://[::ffff:a9fe:a9fe]/"} {
		_, err := get(t, n, u, 0)
		var refused *outbound.RefusedError
		require.ErrorAs(t, err, &refused, u)
	}
	_, err = get(t, n, "http://shop.example/", 0)
	require.NoError(t, err)
	require.Equal(t, []string{"shop.example"}, asked)
}

func TestConcurrencyBoundsConnections(t *testing.T) {
	t.Parallel()
	inside, open := make(chan struct{}, 10), make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) {
		inside <- struct{}{}
		<-open
	})
	n := allowing(t, outbound.Config{Concurrency: 5}, "127.0.0.0/8")
	n.SetConcurrency(2)
	done := make(chan error, 6)
	for range 6 {
		go func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
			if err != nil {
				done <- err
				return
			}
			resp, err := n.Do(req, 0, outbound.Private{}, nil)
			if err == nil {
				err = resp.Body.Close()
			}
			done <- err
		}()
	}
	<-inside
	<-inside
	require.Empty(t, inside)
	close(open)
	for range 6 {
		require.NoError(t, <-done)
	}
}

func TestDialSaysWhatFailed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	n := allowing(t, outbound.Config{}, "127.0.0.0/8")
	for _, secure := range []bool{false, true} {
		_, err = n.Dial(t.Context(), "tcp", addr, secure)
		require.Error(t, err)
		require.NotErrorIs(t, err, context.Canceled)
	}
}
