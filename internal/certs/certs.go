// Package certs holds the certificates that lie in files and reads them again when
// they were renewed, so that nobody restarts for that. What is read is used by the
// connections that are made from then on.
package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"

	"go.uber.org/zap"

	"belay.run/internal/telemetry"
)

// Files names where one side of TLS keeps what it needs, in PEM. Each may be empty.
type Files struct {
	// CA are the authorities that the other side's certificate is checked by.
	CA string
	// Cert and Key are the own certificate, with its chain, and its key.
	Cert, Key string
}

// Source are the certificates in files. It is safe for concurrent use.
type Source struct {
	files Files
	log   *zap.Logger

	mu   sync.Mutex
	seen content
	now  material
	// wrong is what was last found wrong, so that it is said once.
	wrong string
}

// content is what stood in the files.
type content struct{ ca, cert, key []byte }

func (c content) equal(o content) bool {
	return bytes.Equal(c.ca, o.ca) && bytes.Equal(c.cert, o.cert) && bytes.Equal(c.key, o.key)
}

// material is what content comes to.
type material struct {
	pair  *tls.Certificate
	roots *x509.CertPool
}

// Open reads the files, which must be right. The log is told when they are read
// again; nil drops that.
func Open(files Files, log *zap.Logger) (*Source, error) {
	if (files.Cert == "") != (files.Key == "") {
		return nil, errors.New("a certificate and its key belong together")
	}
	s := &Source{files: files, log: telemetry.OrNop(log)}
	c, err := files.read()
	if err != nil {
		return nil, err
	}
	s.seen = c
	s.now, err = files.parse(c)
	return s, err
}

func (f Files) read() (content, error) {
	var c content
	for _, file := range []struct {
		path string
		to   *[]byte
	}{{f.CA, &c.ca}, {f.Cert, &c.cert}, {f.Key, &c.key}} {
		if file.path == "" {
			continue
		}
		text, err := os.ReadFile(file.path)
		if err != nil {
			return content{}, err
		}
		*file.to = text
	}
	return c, nil
}

func (f Files) parse(c content) (material, error) {
	var m material
	if f.CA != "" {
		m.roots = x509.NewCertPool()
		if !m.roots.AppendCertsFromPEM(c.ca) {
			return material{}, fmt.Errorf("no certificate in %s", f.CA)
		}
	}
	if f.Cert != "" {
		pair, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return material{}, fmt.Errorf("%s and %s: %w", f.Cert, f.Key, err)
		}
		m.pair = &pair
	}
	return m, nil
}

// current is what the files hold now. While they are wrong, as between the renewal
// of a certificate and that of its key, it is what they held before.
func (s *Source) current() material {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.files.read()
	if err == nil && c.equal(s.seen) {
		return s.now
	}
	var m material
	if err == nil {
		m, err = s.files.parse(c)
	}
	if err != nil {
		if s.wrong != err.Error() {
			s.wrong = err.Error()
			s.log.Error("certificates cannot be read again: those from before stay", zap.Error(err))
		}
		return s.now
	}
	s.seen, s.now, s.wrong = c, m, ""
	s.log.Info("certificates were read again", zap.String("ca", s.files.CA), zap.String("certificate", s.files.Cert))
	return m
}

// Client is base for a connection that is made now, with what the files hold.
func (s *Source) Client(base *tls.Config) *tls.Config {
	m, c := s.current(), base.Clone()
	if m.roots != nil {
		c.RootCAs = m.roots
	}
	if m.pair != nil {
		c.Certificates = []tls.Certificate{*m.pair}
	}
	return c
}

// Server is the configuration of who listens with the certificate in the files.
func (s *Source) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.current().pair, nil
		},
	}
}
