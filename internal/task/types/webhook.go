package types

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// webhookVerify finds out whether a webhook comes from whom it says.
type webhookVerify struct{ tools Tools }

const (
	toleranceUsual = 5 * time.Minute
	toleranceMost  = 24 * time.Hour
	// skew is how far ahead of ours a sender's clock may be.
	skew = time.Minute
)

func (webhookVerify) Name() string { return "webhook_verify" }

func (webhookVerify) Doc() string {
	return "Checks the signature of a webhook of GitHub, GitLab, Stripe, Slack or any that signs by HMAC, and that it is not an old one sent again."
}

func (webhookVerify) Params() []task.Param {
	return []task.Param{
		{Name: "provider", Kind: task.Text, Required: true, Enum: []string{"github", "gitlab", "stripe", "slack", "hmac"}, Doc: "Who is said to have sent it."},
		{Name: "secret", Kind: task.Secret, Required: true, Doc: "The secret that is shared with the sender."},
		{Name: "headers", Kind: task.Table, Required: true, Doc: "The headers that came, those of the signature at least."},
		{Name: "body", Kind: task.Text, Doc: "The body that came, to the byte."},
		{Name: "body_base64", Kind: task.Text, Doc: "The same in base64, for a body that is no text."},
		{
			Name: "tolerance", Kind: task.Duration,
			Doc: "How old it may be by the time that the sender signed, 5m by default, at most 24h. GitHub and GitLab sign none: let the delivery's id be the task's `key`.",
		},
		{Name: "header", Kind: task.Text, Doc: "For hmac: the header that holds the signature, X-Signature by default."},
		{Name: "prefix", Kind: task.Text, Doc: "For hmac: what stands before the signature, such as `sha256=`."},
		{Name: "algorithm", Kind: task.Text, Enum: []string{"sha256", "sha512", "sha1"}, Doc: "For hmac: the hash, sha256 by default."},
		{Name: "encoding", Kind: task.Text, Enum: []string{"hex", "base64"}, Doc: "For hmac: how the signature is written, hex by default."},
		{
			Name: "timestamp_header", Kind: task.Text,
			Doc: "For hmac: the header that holds the time of sending in seconds since 1970; signed is then the time, a dot and the body.",
		},
	}
}

func (webhookVerify) Outputs() []task.Field {
	return []task.Field{
		{Name: "valid", Kind: task.Truth, Always: true, Doc: "True; what is not valid fails."},
		{Name: "age_s", Kind: task.Number, Doc: "How many seconds ago it was signed, where the sender says so."},
	}
}

func (w webhookVerify) Prepare(with json.RawMessage) (task.Job, error) {
	a := task.ReadArgs(w.Params(), with)
	v := &verification{
		tools: w.tools, secret: a.Text("secret", ""), body: readBody(a), headers: readReceived(a),
		tolerance: a.Duration("tolerance", toleranceUsual, time.Second, toleranceMost),
		scheme: hmacScheme{
			header: a.Text("header", "X-Signature"), prefix: a.Text("prefix", ""),
			algorithm: a.Text("algorithm", "sha256"), encoding: a.Text("encoding", "hex"),
			timestamp: a.Text("timestamp_header", ""),
		},
	}
	v.provider = a.Text("provider", "")
	for _, name := range []string{"header", "prefix", "algorithm", "encoding", "timestamp_header"} {
		if v.provider != "hmac" && v.provider != "" && a.Has(name) {
			a.Wrong(name, "it belongs to provider: hmac, %s has its own", v.provider)
		}
	}
	if a.Has("tolerance") && (v.provider == "github" || v.provider == "gitlab") {
		a.Wrong("tolerance", "%s signs no time, so that age cannot be told: let the delivery's id be the task's key", v.provider)
	}
	if a.Has("tolerance") && v.provider == "hmac" && v.scheme.timestamp == "" {
		a.Wrong("tolerance", "it needs `timestamp_header`")
	}
	return v, a.Err()
}

// readBody reads the body that came, which must not change on the way: one byte
// more or less, and no signature fits.
func readBody(a *task.Args) []byte {
	if !a.Has("body_base64") {
		return []byte(a.Text("body", ""))
	}
	if a.Has("body") {
		a.Wrong("body_base64", "give it or `body`, not both")
	}
	body, err := base64.StdEncoding.DecodeString(a.Text("body_base64", ""))
	if err != nil {
		a.Wrong("body_base64", "it is no base64: %s", err)
	}
	return body
}

// readReceived reads headers that came. Of a header that is there twice nobody
// can say which was signed.
func readReceived(a *task.Args) http.Header {
	headers := make(http.Header)
	for name, value := range a.Table("headers") {
		key := http.CanonicalHeaderKey(name)
		if headers[key] != nil {
			a.Wrong("headers", "%.64s: it is given twice", key)
		}
		headers[key] = []string{value}
	}
	return headers
}

// verification is a webhook to be checked.
type verification struct {
	tools     Tools
	provider  string
	secret    string
	headers   http.Header
	body      []byte
	tolerance time.Duration
	scheme    hmacScheme
}

func (*verification) Target() string { return "" }

func (v *verification) Run(ctx context.Context, o task.Origin) (task.Output, error) {
	value, err := v.tools.secretOf(ctx, o, "secret", v.secret, secret.Nowhere)
	if err != nil {
		return nil, err
	}
	claim, err := v.claim()
	if err != nil {
		return nil, err
	}
	if !claim.holds([]byte(value.Reveal()), v.body) {
		return nil, v.wrong("the signature is not that of the body with the secret %s", v.secret)
	}
	out := task.Output{"valid": true}
	if claim.at.IsZero() {
		return out, nil
	}
	// After the signature, which is what makes the time one that the sender said.
	age := v.tools.Now().Sub(claim.at)
	switch {
	case age > v.tolerance:
		return nil, v.wrong("it was signed %s ago, more than the tolerance of %s: perhaps it is sent again by another", age.Round(time.Second), v.tolerance)
	case -age > min(skew, v.tolerance):
		return nil, v.wrong("it was signed %s in the future: one of the clocks is wrong", (-age).Round(time.Second))
	}
	out["age_s"] = int(max(age, 0).Seconds())
	return out, nil
}

func (v *verification) wrong(format string, args ...any) *task.Failure {
	return task.Failf(run.TriggerExitCode, "webhook of "+v.provider+": "+format, args...)
}

// claim is what the headers say of the signature.
func (v *verification) claim() (claim, error) {
	read := map[string]func(http.Header) (claim, string){
		"github": githubClaim, "gitlab": gitlabClaim, "stripe": stripeClaim, "slack": slackClaim, "hmac": v.scheme.claim,
	}[v.provider]
	c, wrong := read(v.headers)
	if wrong != "" {
		return claim{}, v.wrong("%s", wrong)
	}
	return c, nil
}

// one is the value of a header that must be there.
func one(h http.Header, name string) (value, wrong string) {
	value = strings.TrimSpace(h.Get(name))
	if value == "" {
		return "", "the header " + http.CanonicalHeaderKey(name) + " is missing"
	}
	return value, ""
}

// unix reads seconds since 1970, as every provider writes them: digits only, so
// that what was signed and what is read cannot differ.
func unix(text string) (time.Time, bool) {
	if len(text) == 0 || len(text) > 11 || slices.ContainsFunc([]byte(text), func(b byte) bool { return b < '0' || b > '9' }) {
		return time.Time{}, false
	}
	var seconds int64
	for _, b := range []byte(text) {
		seconds = seconds*10 + int64(b-'0')
	}
	return time.Unix(seconds, 0), true
}
