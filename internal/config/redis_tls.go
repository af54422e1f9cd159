package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
)

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

// config is nil where TLS is not spoken. Server is the name in the certificate
// where the options name no other; "" is that of whatever host is dialled.
func (t redisTLS) config(secure bool, server string) (*tls.Config, error) {
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
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("tls_ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls_ca_file: no certificate in %s", t.ca)
		}
	}
	if (t.cert == "") != (t.key == "") {
		return nil, errors.New("tls_cert_file and tls_key_file belong together")
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("tls_cert_file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
