package types

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // HMAC-SHA1 is not broken, and what some senders have
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"net/http"
	"strings"
	"time"
)

// claimsMost is how many signatures a webhook may have. Two are usual where a
// secret is being changed.
const claimsMost = 16

// claim is a signature as it came with a webhook.
type claim struct {
	// token is the secret itself, which is all that GitLab sends.
	token string
	// signatures are those of which one is to be right: HMACs of what comes
	// before the body, and the body.
	signatures [][]byte
	hash       func() hash.Hash
	before     string
	// at is when it was signed, zero where that is not said.
	at time.Time
}

// holds reports whether the claim is right, in a time that does not depend on
// how wrong it is.
func (c claim) holds(key, body []byte) bool {
	if c.token != "" {
		// Of both the hash, since the comparison tells lengths apart.
		got, want := sha256.Sum256([]byte(c.token)), sha256.Sum256(key)
		return subtle.ConstantTimeCompare(got[:], want[:]) == 1
	}
	mac := hmac.New(c.hash, key)
	mac.Write([]byte(c.before))
	mac.Write(body)
	want, right := mac.Sum(nil), 0
	for _, s := range c.signatures {
		right |= subtle.ConstantTimeCompare(s, want)
	}
	return right == 1
}

// githubClaim takes the signature by SHA-256 only: the old one by SHA-1 is sent
// beside it by every GitHub there still is.
func githubClaim(h http.Header) (claim, string) {
	return hmacScheme{header: "X-Hub-Signature-256", prefix: "sha256=", algorithm: "sha256", encoding: "hex"}.claim(h)
}

func gitlabClaim(h http.Header) (claim, string) {
	token, wrong := one(h, "X-Gitlab-Token")
	return claim{token: token}, wrong
}

func slackClaim(h http.Header) (claim, string) {
	s := hmacScheme{header: "X-Slack-Signature", prefix: "v0=", algorithm: "sha256", encoding: "hex", timestamp: "X-Slack-Request-Timestamp"}
	c, wrong := s.claim(h)
	if wrong == "" {
		c.before = "v0:" + strings.TrimSpace(h.Get(s.timestamp)) + ":"
	}
	return c, wrong
}

// stripeClaim reads t=seconds,v1=signature, of which there are several while a
// secret is being changed. Schemes other than v1 are not looked at: v0 is that
// of tests, and taking it would let anybody sign.
func stripeClaim(h http.Header) (claim, string) {
	value, wrong := one(h, "Stripe-Signature")
	if wrong != "" {
		return claim{}, wrong
	}
	c := claim{hash: sha256.New}
	for part := range strings.SplitSeq(value, ",") {
		name, text, ok := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case !ok:
			return claim{}, "the header Stripe-Signature cannot be read, expected t=…,v1=…"
		case name == "t" && !c.at.IsZero():
			return claim{}, "the header Stripe-Signature has two times"
		case name == "t":
			if c.at, ok = unix(text); !ok || c.at.Unix() == 0 {
				return claim{}, "the time in the header Stripe-Signature is not in seconds since 1970"
			}
			c.before = text + "."
		case name == "v1":
			// One that cannot be read is only a wrong one; another may be right.
			if s, err := hex.DecodeString(text); err == nil {
				c.signatures = append(c.signatures, s)
			}
		}
	}
	switch {
	case c.at.IsZero():
		return claim{}, "the header Stripe-Signature has no time t="
	case len(c.signatures) == 0:
		return claim{}, "the header Stripe-Signature has no signature v1="
	case len(c.signatures) > claimsMost:
		return claim{}, "the header Stripe-Signature has too many signatures"
	}
	return c, ""
}

// hmacScheme is how a sender signs.
type hmacScheme struct {
	header, prefix, algorithm, encoding string
	// timestamp is the header that holds the time; what is signed then begins
	// with the time and a dot.
	timestamp string
}

func (s hmacScheme) claim(h http.Header) (claim, string) {
	value, wrong := one(h, s.header)
	if wrong != "" {
		return claim{}, wrong
	}
	c := claim{hash: map[string]func() hash.Hash{"sha256": sha256.New, "sha512": sha512.New, "sha1": sha1.New}[s.algorithm]}
	text, ok := strings.CutPrefix(value, s.prefix)
	if !ok {
		return claim{}, "the signature in the header " + http.CanonicalHeaderKey(s.header) + " does not begin with " + s.prefix
	}
	decode := hex.DecodeString
	if s.encoding == "base64" {
		decode = base64.StdEncoding.DecodeString
	}
	signature, err := decode(text)
	if err != nil || len(signature) == 0 {
		return claim{}, "the signature in the header " + http.CanonicalHeaderKey(s.header) + " is no " + s.encoding
	}
	c.signatures = [][]byte{signature}
	if s.timestamp == "" {
		return c, ""
	}
	at, wrong := one(h, s.timestamp)
	if wrong != "" {
		return claim{}, wrong
	}
	if c.at, ok = unix(at); !ok {
		return claim{}, "the header " + http.CanonicalHeaderKey(s.timestamp) + " does not hold seconds since 1970"
	}
	c.before = at + "."
	return c, ""
}
