package types

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"belay.run/internal/secret"
	"belay.run/internal/task"
)

// healthCheck asks a service whether it is well, in the service's own protocol.
type healthCheck struct{ tools Tools }

// healthKind is a protocol in which a service is asked.
type healthKind struct {
	name string
	// schemes are those of its URLs, secure the last of them where it encrypts.
	schemes []string
	port    string
	// params are those that mean anything to it.
	params []string
	probe  func(ctx context.Context, p *probe) error
}

func healthKinds() []healthKind {
	return []healthKind{
		{name: "http", schemes: []string{"http", "https"}, params: []string{"status", "expect", "secret"}},
		{name: "tcp", schemes: []string{"tcp"}, params: []string{"expect"}, probe: probeTCP},
		{name: "grpc", schemes: []string{"grpc", "grpcs"}, port: "443", params: []string{"service", "secret"}, probe: probeGRPC},
		{name: "redis", schemes: []string{"redis", "rediss"}, port: "6379", params: []string{"secret"}, probe: probeRedis},
		{name: "postgres", schemes: []string{"postgres", "postgresql"}, port: "5432", probe: probePostgres},
		{name: "amqp", schemes: []string{"amqp", "amqps"}, port: "5672", probe: probeAMQP},
	}
}

func (healthCheck) Name() string { return "health_check" }

func (healthCheck) Doc() string {
	return "Asks a service whether it is well, in its own protocol: http, tcp, grpc, redis, postgres or amqp."
}

func (healthCheck) Params() []task.Param {
	var kinds []string
	for _, k := range healthKinds() {
		kinds = append(kinds, k.name)
	}
	return []task.Param{
		{
			Name: "url", Kind: task.Text, Required: true,
			Doc: "Whom to ask, such as `https://shop/health`, `tcp://db:5432`, `grpcs://api:443`, `rediss://cache`, `postgres://db/shop`, `amqp://queue`; with `kind` also host:port alone.",
		},
		{Name: "kind", Kind: task.Text, Enum: kinds, Doc: "The protocol, where the URL does not say it by its scheme."},
		statusParam(),
		{Name: "expect", Kind: task.Texts, Doc: "Texts that the answer is to hold, each of them: http in its body, tcp in what the service says first."},
		{Name: "service", Kind: task.Text, Doc: "The service that grpc asks after; the server as a whole by default."},
		{Name: "secret", Kind: task.Secret, Doc: "The secret that is sent along: http and grpc as a bearer token, redis as a password."},
	}
}

func (healthCheck) Outputs() []task.Field {
	return []task.Field{
		{Name: "kind", Kind: task.Text, Always: true, Doc: "The protocol."},
		{Name: "latency_ms", Kind: task.Number, Always: true, Doc: "How long it took to the answer's end."},
		{Name: "status", Kind: task.Number, Doc: "The answer's status, for http."},
	}
}

func (h healthCheck) Prepare(with json.RawMessage) (task.Job, error) {
	a := task.ReadArgs(h.Params(), with)
	kind, u := readHealthURL(a)
	for _, name := range []string{"status", "expect", "service", "secret"} {
		if a.Has(name) && kind.name != "" && !slices.Contains(kind.params, name) {
			a.Wrong(name, "it means nothing to kind %s", kind.name)
		}
	}
	want, e, service, auth := readStatuses(a), expect{texts: a.Texts("expect")}, a.Text("service", ""), bearer(a, "secret")
	if slices.Contains(e.texts, "") {
		a.Wrong("expect", "it holds an empty text, which every answer has")
	}
	if err := a.Err(); err != nil {
		return nil, err
	}
	if kind.name == "http" {
		c := call{method: http.MethodGet, url: u, auth: auth, redirects: redirectsUsual, most: bodyUsual, keep: !e.empty()}
		return &httpHealth{httpJob{tools: h.tools, call: c, want: want, expect: e}}, nil
	}
	return &probe{
		tools: h.tools, kind: kind, url: u, service: service, auth: auth, texts: e.texts,
		secure: len(kind.schemes) > 1 && kind.name != "postgres" && u.Scheme == kind.schemes[1],
	}, nil
}

// readHealthURL reads whom to ask, and in which protocol.
func readHealthURL(a *task.Args) (healthKind, *url.URL) {
	kinds := healthKinds()
	var schemes []string
	for _, k := range kinds {
		schemes = append(schemes, k.schemes...)
	}
	named := slices.IndexFunc(kinds, func(k healthKind) bool { return k.name == a.Text("kind", "") })
	text := a.Text("url", "")
	if named >= 0 {
		schemes = kinds[named].schemes
		if text != "" && !strings.Contains(text, "://") {
			text = schemes[0] + "://" + text
		}
	}
	u := checkURL(a, "url", text, schemes...)
	if u.Scheme == "" {
		return healthKind{}, u
	}
	if named < 0 {
		named = slices.IndexFunc(kinds, func(k healthKind) bool { return slices.Contains(k.schemes, u.Scheme) })
	}
	kind := kinds[named]
	if u.Scheme == "amqps" {
		kind.port = "5671"
	}
	if (kind.name == "tcp" || u.Scheme == "grpc") && u.Port() == "" {
		a.Wrong("url", "it names no port, expected %s://host:port", u.Scheme)
	}
	return kind, u
}

// httpHealth is a health check over HTTP.
type httpHealth struct{ httpJob }

func (j *httpHealth) Run(ctx context.Context, o task.Origin) (task.Output, error) {
	out, err := j.httpJob.Run(ctx, o)
	if out != nil {
		delete(out, "bytes")
		out["kind"] = "http"
	}
	return out, err
}

// probe is a health check in another protocol.
type probe struct {
	tools   Tools
	kind    healthKind
	url     *url.URL
	secure  bool
	service string
	auth    auth
	texts   []string
	// token is the secret, read when the probe is run.
	token secret.Value
}

func (p *probe) Target() string { return address(p.url, p.kind.port) }

// String says what the probe does; the URL's query and user do not matter.
func (p *probe) String() string { return p.kind.name + " " + p.Target() }

func (p *probe) Run(ctx context.Context, o task.Origin) (task.Output, error) {
	if p.auth.secret != "" {
		var err error
		if p.token, err = p.tools.secretOf(ctx, o, p.auth.param, p.auth.secret, p.Target()); err != nil {
			return nil, err
		}
	}
	began := p.tools.Now()
	if err := p.kind.probe(ctx, p); err != nil {
		return nil, err
	}
	return task.Output{"kind": p.kind.name, "latency_ms": p.tools.Now().Sub(began).Milliseconds()}, nil
}

// hidden is what is not to be shown of an answer.
func (p *probe) hidden() []secret.Value {
	if p.auth.secret == "" {
		return nil
	}
	return []secret.Value{p.token}
}
