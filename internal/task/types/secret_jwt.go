package types

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// jwtCheck checks a JSON web token.
type jwtCheck struct {
	validity
	secret, key      string
	issuer, audience string
}

func (*jwtCheck) Target() string { return "" }

func (j *jwtCheck) Run(ctx context.Context, o task.Origin) (task.Output, error) {
	v, err := j.tools.secretOf(ctx, o, "secret", j.secret, secret.Nowhere)
	if err != nil {
		return nil, err
	}
	token, claims := strings.TrimSpace(v.Reveal()), jwt.RegisteredClaims{}
	// When it ends is told by until, in words that name the day.
	options := []jwt.ParserOption{jwt.WithTimeFunc(j.tools.Now), jwt.WithoutClaimsValidation()}
	if j.key == "" {
		parsed, _, err := jwt.NewParser(options...).ParseUnverified(token, &claims)
		if err != nil {
			return nil, j.wrong("it is no JWT")
		}
		if parsed.Method == jwt.SigningMethodNone {
			return nil, j.wrong("it is not signed")
		}
	} else if err := j.verify(ctx, o, token, &claims, options); err != nil {
		return nil, err
	}
	return j.claims(claims)
}

// verify checks the signature. The key decides which kinds of it there may be,
// never the token: or a public key could be used as one of HMAC.
func (j *jwtCheck) verify(ctx context.Context, o task.Origin, token string, claims *jwt.RegisteredClaims, options []jwt.ParserOption) error {
	v, err := j.tools.secretOf(ctx, o, "key", j.key, secret.Nowhere)
	if err != nil {
		return err
	}
	key, methods, err := signatureKey(v.Reveal())
	if err != nil {
		return task.Failf(run.TriggerInvalid, "key: the secret %s: %s", j.key, err)
	}
	parser := jwt.NewParser(append(options, jwt.WithValidMethods(methods))...)
	_, err = parser.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return key, nil })
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return j.wrong("it is no JWT")
	case err != nil:
		return j.wrong("its signature is not by the key %s, or not of a kind that fits the key", j.key)
	}
	return nil
}

func (j *jwtCheck) claims(c jwt.RegisteredClaims) (task.Output, error) {
	audience := false
	for _, a := range c.Audience {
		audience = audience || a == j.audience
	}
	switch {
	case c.ExpiresAt == nil:
		return nil, j.wrong("it never expires: it has no exp")
	case c.NotBefore != nil && c.NotBefore.After(j.tools.Now().Add(skew)):
		return nil, j.wrong("it is not valid before %s", c.NotBefore.UTC().Format("2006-01-02T15:04:05Z"))
	case j.issuer != "" && c.Issuer != j.issuer:
		return nil, j.wrong("its issuer is not %.64q", j.issuer)
	case j.audience != "" && !audience:
		return nil, j.wrong("it is not for %.64q", j.audience)
	}
	return j.until("the token in the secret "+j.secret, c.ExpiresAt.Time)
}

func (j *jwtCheck) wrong(format string, args ...any) error {
	return task.Failf(run.TriggerExitCode, "the token in the secret "+j.secret+": "+format, args...)
}

// signatureKey reads a key, and says which signatures it can check.
func signatureKey(text string) (key any, methods []string, err error) {
	if !strings.Contains(text, "-----BEGIN") {
		return []byte(text), []string{"HS256", "HS384", "HS512"}, nil
	}
	block, _ := pem.Decode([]byte(strings.TrimSpace(text)))
	if block == nil {
		return nil, nil, errors.New("its PEM cannot be read")
	}
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = c.PublicKey
		}
	default:
		return nil, nil, errors.New("expected a public key or a certificate")
	}
	if err != nil {
		return nil, nil, errors.New("its key cannot be read")
	}
	switch key.(type) {
	case *rsa.PublicKey:
		return key, []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}, nil
	case *ecdsa.PublicKey:
		return key, []string{"ES256", "ES384", "ES512"}, nil
	case ed25519.PublicKey:
		return key, []string{"EdDSA"}, nil
	}
	return nil, nil, errors.New("keys of its kind check no signatures here")
}
