package types

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"time"

	"belay.run/internal/run"
	"belay.run/internal/task"
)

// secretCheck finds out whether a credential is still good, and for how long.
type secretCheck struct{ tools Tools }

// validMost is as far ahead as a credential can be asked to be valid.
const validMost = 10 * 365 * 24 * time.Hour

func (secretCheck) Name() string { return "secret_check" }

func (secretCheck) Doc() string {
	return "Checks that a certificate, a JWT or a token is good, and stays so for a time."
}

func (secretCheck) Params() []task.Param {
	return []task.Param{
		{Name: "kind", Kind: task.Text, Required: true, Enum: []string{"x509", "jwt", "token"}, Doc: "What is checked."},
		{Name: "min_valid", Kind: task.Duration, Doc: "For x509 and jwt: how long it is to stay valid at least, such as 336h; 0s by default: that it is valid now."},
		{Name: "address", Kind: task.Text, Doc: "For x509: the host:port whose certificate is checked, one that begins with TLS."},
		{Name: "server_name", Kind: task.Text, Doc: "For x509: the name that the certificate is to be for; that of `address` by default, for a file none."},
		{Name: "file", Kind: task.Text, Doc: "For x509: a PEM file with the certificate first, then those between it and the authority."},
		{Name: "ca_file", Kind: task.Text, Doc: "For x509: a PEM file of the authorities that are trusted, in place of the system's."},
		{Name: "secret", Kind: task.Secret, Doc: "The secret that is checked: for jwt and token, and for x509 where it is PEM."},
		{Name: "key", Kind: task.Secret, Doc: "For jwt: the secret that holds the key of its signature: a public key or certificate in PEM, else one of HMAC. Without it the signature is not checked."},
		{Name: "issuer", Kind: task.Text, Doc: "For jwt: who is to have issued it."},
		{Name: "audience", Kind: task.Text, Doc: "For jwt: whom it is to be for."},
		{Name: "url", Kind: task.Text, Doc: "For token: what is asked with it, by GET."},
		statusParam(),
		{Name: "auth", Kind: task.Text, Enum: []string{"bearer", "basic", "header"}, Doc: "For token: how it is sent, as in `http`; bearer by default."},
		{Name: "auth_header", Kind: task.Text, Doc: "For token: the header of `auth: header`."},
	}
}

func (secretCheck) Outputs() []task.Field {
	return []task.Field{
		{Name: "kind", Kind: task.Text, Always: true, Doc: "What was checked."},
		{Name: "expires_at", Kind: task.Text, Doc: "When it ends, as in 2030-01-31T12:00:00Z; for a certificate the first of its chain."},
		{Name: "valid_for_s", Kind: task.Number, Doc: "In how many seconds that is."},
		{Name: "subject", Kind: task.Text, Doc: "Whose it is, for a certificate."},
		{Name: "status", Kind: task.Number, Doc: "What the token's probe was answered."},
	}
}

func (s secretCheck) Prepare(with json.RawMessage) (task.Job, error) {
	a := task.ReadArgs(s.Params(), with)
	kind := a.Text("kind", "")
	onlyOf(a, kind, map[string][]string{
		"x509":  {"min_valid", "address", "server_name", "file", "ca_file", "secret"},
		"jwt":   {"min_valid", "secret", "key", "issuer", "audience"},
		"token": {"secret", "url", "status", "auth", "auth_header"},
	})
	v := validity{kind: kind, tools: s.tools, least: a.Duration("min_valid", 0, 0, validMost)}
	want := readStatuses(a)
	if kind != "" && kind != "x509" && !a.Has("secret") {
		a.Wrong("secret", "%s needs the secret to check", kind)
	}
	switch kind {
	case "x509":
		return s.certificate(a, v), a.Err()
	case "jwt":
		return &jwtCheck{
			validity: v, secret: a.Text("secret", ""), key: a.Text("key", ""),
			issuer: a.Text("issuer", ""), audience: a.Text("audience", ""),
		}, a.Err()
	}
	if kind == "token" && !a.Has("url") {
		a.Wrong("url", "token needs what to ask with it")
	}
	return &tokenCheck{
		tools: s.tools, want: want,
		call: call{method: http.MethodGet, url: readURL(a, "url", "http", "https"), auth: readAuth(a), redirects: redirectsUsual, most: bodyUsual},
	}, a.Err()
}

func (s secretCheck) certificate(a *task.Args, v validity) task.Job {
	given := 0
	for _, name := range []string{"address", "file", "secret"} {
		if a.Has(name) {
			given++
		}
	}
	if given != 1 {
		a.Wrong("address", "x509 needs one of `address`, `file` and `secret`, found %d", given)
	}
	j := &certCheck{
		validity: v, address: readAddress(a, "address"), file: readPath(a, "file"), secret: a.Text("secret", ""),
		ca: readPath(a, "ca_file"), server: a.Text("server_name", ""),
	}
	if j.server == "" && j.address != "" {
		j.server, _, _ = net.SplitHostPort(j.address) // readAddress has said what is wrong
	}
	return j
}

// validity is what is demanded of anything that ends.
type validity struct {
	kind  string
	tools Tools
	least time.Duration
}

// until is the output for what is valid until then, or a failure where that is
// too soon.
func (v validity) until(what string, end time.Time) (task.Output, error) {
	left := end.Sub(v.tools.Now())
	out := task.Output{"kind": v.kind, "expires_at": end.UTC().Format(time.RFC3339), "valid_for_s": int(left.Seconds())}
	switch {
	case left <= 0:
		return out, task.Failf(run.TriggerExitCode, "%s has expired, at %s", what, out["expires_at"])
	case left < v.least:
		return out, task.Failf(run.TriggerExitCode, "%s expires at %s, in %s; expected are at least %s", what, out["expires_at"], left.Round(time.Second), v.least)
	}
	return out, nil
}

// tokenCheck asks something with a token.
type tokenCheck struct {
	tools Tools
	call  call
	want  statuses
}

func (j *tokenCheck) Target() string { return httpAddress(j.call.url) }

func (j *tokenCheck) Run(ctx context.Context, o task.Origin) (task.Output, error) {
	a, err := j.call.do(ctx, j.tools, o)
	if err != nil {
		return nil, err
	}
	out := task.Output{"kind": "token", "status": a.status}
	refused := a.status == http.StatusUnauthorized || a.status == http.StatusForbidden
	if refused && !j.want.has(a.status) {
		return out, task.Failf(run.TriggerExitCode, "the secret %s: %s refuses it with %d", j.call.auth.secret, shownHost(j.call.url), a.status)
	}
	return out, j.call.expected(a, j.want)
}

// shownHost is where a URL leads.
func shownHost(u *url.URL) string { return u.Scheme + "://" + u.Host }
