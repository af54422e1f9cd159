package types

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	"belay.run/internal/run"
	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// authParams are how a request says who sends it.
func authParams() []task.Param {
	return []task.Param{
		{Name: "secret", Kind: task.Secret, Doc: "The secret that is sent along, as `auth` says."},
		{
			Name: "auth", Kind: task.Text, Enum: []string{"bearer", "basic", "header"},
			Doc: "How the secret is sent: as a bearer token (the default), as `user:password` of basic, or alone in the header `auth_header`.",
		},
		{Name: "auth_header", Kind: task.Text, Doc: "The header of `auth: header`, such as PRIVATE-TOKEN."},
	}
}

// auth is how a request says who sends it; the zero auth says nothing.
type auth struct {
	param, secret string
	scheme        string
	header        string
}

// bearer is a token, by the name of its secret, which a parameter gave.
func bearer(a *task.Args, param string) auth {
	return auth{param: param, secret: a.Text(param, ""), scheme: "bearer", header: "Authorization"}
}

func readAuth(a *task.Args) auth {
	au := bearer(a, "secret")
	au.scheme = a.Text("auth", "bearer")
	if au.secret == "" && a.Has("auth") {
		a.Wrong("auth", "there is nothing to send: give `secret` too")
	}
	name := a.Text("auth_header", "")
	switch {
	case au.scheme != "header" && a.Has("auth_header"):
		a.Wrong("auth_header", "it belongs to auth: header")
	case au.scheme == "header" && !isToken(name):
		a.Wrong("auth_header", "found %.64q, expected the name of a header", name)
	case au.scheme == "header" && decided(name):
		a.Wrong("auth_header", "found %.64q, which cannot hold a secret: the request's other parts decide it", name)
	case au.scheme == "header":
		au.header = http.CanonicalHeaderKey(name)
	}
	return au
}

// value is the header's value for host:port, and the secret in it.
func (au auth) value(ctx context.Context, t Tools, o task.Origin, to string) (string, secret.Value, error) {
	v, err := t.secretOf(ctx, o, au.param, au.secret, to)
	if err != nil {
		return "", v, err
	}
	text := strings.TrimSpace(v.Reveal())
	switch {
	case au.scheme == "basic" && !strings.Contains(text, ":"):
		return "", v, task.Failf(run.TriggerInvalid, "%s: the secret %s is not user:password, as auth: basic demands", au.param, au.secret)
	case au.scheme == "basic":
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)), v, nil
	case !isFieldValue(text):
		return "", v, task.Failf(run.TriggerInvalid, "%s: the secret %s holds what a header cannot", au.param, au.secret)
	case au.scheme == "bearer":
		return "Bearer " + text, v, nil
	}
	return text, v, nil
}
