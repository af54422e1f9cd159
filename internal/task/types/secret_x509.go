package types

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"belay.run/internal/outbound"
	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// certCheck checks a certificate and those that vouch for it.
type certCheck struct {
	validity
	address, file, secret string
	ca                    string
	// server is the name that the certificate is to be for, "" for any.
	server string
}

func (j *certCheck) Target() string { return outbound.Canonical(j.address) }

func (j *certCheck) Run(ctx context.Context, o task.Origin) (task.Output, error) {
	config := j.tools.Net.TLS(j.server)
	if j.ca != "" {
		authorities, err := j.pemFile("ca_file", j.ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		for _, c := range authorities {
			config.RootCAs.AddCert(c)
		}
	}
	if j.address != "" {
		return j.ofHost(ctx, config)
	}
	return j.ofPEM(ctx, o, config)
}

func (j *certCheck) ofHost(ctx context.Context, config *tls.Config) (task.Output, error) {
	what := "the certificate of " + j.address
	conn, err := j.tools.Net.DialContext(ctx, "tcp", j.address)
	if err != nil {
		return nil, failure(ctx, what, err)
	}
	defer func() { _ = conn.Close() }() // nothing is left to be said
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		if wrong, ok := errors.AsType[*tls.CertificateVerificationError](err); ok && ctx.Err() == nil {
			return nil, j.untrusted(what, wrong.Err)
		}
		return nil, failure(ctx, what, err)
	}
	return j.chains(what, secure.ConnectionState().VerifiedChains)
}

func (j *certCheck) ofPEM(ctx context.Context, o task.Origin, config *tls.Config) (task.Output, error) {
	var certs []*x509.Certificate
	var err error
	what := "the certificate in " + j.file
	if j.file != "" {
		certs, err = j.pemFile("file", j.file)
	} else {
		what = "the certificate in the secret " + j.secret
		v, secretErr := j.tools.secretOf(ctx, o, "secret", j.secret, secret.Nowhere)
		if secretErr != nil {
			return nil, secretErr
		}
		certs, err = certificates(what, []byte(v.Reveal()))
	}
	if err != nil {
		return nil, err
	}
	between := x509.NewCertPool()
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	chains, err := certs[0].Verify(x509.VerifyOptions{
		Roots: config.RootCAs, Intermediates: between, DNSName: j.server, CurrentTime: j.tools.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return nil, j.untrusted(what, err)
	}
	return j.chains(what, chains)
}

// chains is what there is to say of a certificate that somebody vouches for. It
// is good as long as one of its chains is, and a chain as long as all of it.
func (j *certCheck) chains(what string, chains [][]*x509.Certificate) (task.Output, error) {
	var last time.Time
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, c := range chain[1:] {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if end.After(last) {
			last = end
		}
	}
	out, err := j.until(what, last)
	out["subject"] = safe(chains[0][0].Subject.String())
	return out, err
}

// untrusted is the failure of a certificate that is not good. The host that
// shows it is well: it is not its circuit breaker's business.
func (j *certCheck) untrusted(what string, err error) error {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		c := invalid.Cert
		if j.tools.Now().Before(c.NotBefore) {
			return task.Failf(run.TriggerExitCode, "%s: that of %s is not valid before %s",
				what, safe(c.Subject.String()), c.NotBefore.UTC().Format(time.RFC3339))
		}
		return task.Failf(run.TriggerExitCode, "%s: that of %s has expired, at %s",
			what, safe(c.Subject.String()), c.NotAfter.UTC().Format(time.RFC3339))
	}
	return task.Failf(run.TriggerExitCode, "%s: %s", what, safe(err.Error()))
}

func (j *certCheck) pemFile(param, path string) ([]*x509.Certificate, error) {
	f, err := j.tools.openFile(param, path)
	if err != nil {
		return nil, err
	}
	defer f.close()
	text, err := f.read(fileMost)
	if err != nil {
		return nil, task.Failf(run.TriggerExitCode, "%s: %s", param, err)
	}
	return certificates(path, text)
}

// certificates reads those that are in a PEM text, of which there is at least
// one. Keys beside them are passed over.
func certificates(what string, text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, task.Failf(run.TriggerExitCode, "%s: %s", what, safe(fmt.Sprintf("certificate %d: %s", len(all)+1, err)))
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, task.Failf(run.TriggerExitCode, "%s: it holds no certificate in PEM", what)
	}
	return all, nil
}
