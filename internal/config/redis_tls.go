package config

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"belay.run/internal/certs"
)

// redisKeepAlive is how often an idle connection is felt for, as go-redis does.
const redisKeepAlive = 5 * time.Minute

// redisTLS are the options of a URL that say how to speak TLS.
type redisTLS struct {
	given []string
	// ca, cert and key are files; server is the name that a certificate is
	// checked for instead of that of the host.
	ca, cert, key, server string
	skipVerify            string
}

// takeTLS takes these options out of a query.
func takeTLS(query url.Values) redisTLS {
	var t redisTLS
	for _, o := range []struct {
		name string
		to   *string
	}{
		{"tls_ca_file", &t.ca},
		{"tls_cert_file", &t.cert},
		{"tls_key_file", &t.key},
		{"tls_server_name", &t.server},
		{"skip_verify", &t.skipVerify},
	} {
		if query.Has(o.name) {
			*o.to = query.Get(o.name)
			t.given = append(t.given, o.name)
			query.Del(o.name)
		}
	}
	return t
}

// dialer makes connections; it is that of go-redis where it is nil.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// config is nil where TLS is not spoken. Server is the name in the certificate
// where the options name no other; "" is that of whatever host is dialled. Where
// files are named, each connection is made with what they hold then.
func (t redisTLS) config(secure bool, server string, timeout time.Duration) (*tls.Config, dialer, error) {
	c, err := t.plain(secure, server)
	if err != nil || c == nil || t.ca == "" && t.cert == "" {
		return c, nil, err
	}
	source, err := certs.Open(certs.Files{CA: t.ca, Cert: t.cert, Key: t.key}, nil)
	if err != nil {
		where := "tls_ca_file"
		if t.cert != "" {
			where = "tls_cert_file, " + where
		}
		return nil, nil, fmt.Errorf("%s: %w", where, err)
	}
	return source.Client(c), func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: timeout, KeepAlive: redisKeepAlive}, Config: source.Client(c)}
		return d.DialContext(ctx, network, addr)
	}, nil
}

// plain is the configuration without what lies in files.
func (t redisTLS) plain(secure bool, server string) (*tls.Config, error) {
	if !secure {
		if len(t.given) > 0 {
			return nil, fmt.Errorf("%s without TLS: want rediss", t.given[0])
		}
		return nil, nil //nolint:nilnil // how go-redis says that there is no TLS
	}
	if t.server != "" {
		server = t.server
	}
	c := &tls.Config{ServerName: server, MinVersion: tls.VersionTLS12}
	if t.skipVerify != "" {
		skip, err := strconv.ParseBool(t.skipVerify)
		if err != nil {
			return nil, fmt.Errorf("skip_verify: want true or false, not %q", t.skipVerify)
		}
		c.InsecureSkipVerify = skip
	}
	if (t.cert == "") != (t.key == "") {
		return nil, errors.New("tls_cert_file and tls_key_file belong together")
	}
	return c, nil
}
