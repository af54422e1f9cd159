package spec

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Notify is who is told of what a run could not give back: a command, which a
// worker runs, or a webhook, which is sent a POST. Exactly one is set.
type Notify struct {
	// Command is a script; Secrets are the variables that it is given.
	Command string   `json:"command,omitempty"`
	Secrets []string `json:"secrets,omitempty"`
	// Webhook is an address; Secret, where it is not empty, names the secret
	// that is sent along as a bearer token.
	Webhook string `json:"webhook,omitempty"`
	Secret  string `json:"secret,omitempty"`
}

type rawNotify struct {
	command val[string]
	secrets val[[]val[string]]
	webhook val[string]
	secret  val[string]
}

func notifyObject() *object[rawNotify] {
	const command, webhook form = 1, 2
	o := &object[rawNotify]{
		name: "notify",
		def:  "notify",
		forms: []objectForm{
			{command, "command", "notify with command", "notifyCommand", "it belongs to webhook; a command has secrets: [NAME]"},
			{webhook, "webhook", "notify with webhook", "notifyWebhook", "it belongs to command; a webhook has secret: NAME"},
		},
	}
	o.fields = append(o.fields, only(command,
		key("command", script(), func(n *rawNotify) *val[string] { return &n.command }),
		key("secrets", listOf(named(envNames("a secret")), "secrets"), func(n *rawNotify) *val[[]val[string]] { return &n.secrets }),
	)...)
	o.fields = append(o.fields, only(webhook,
		key("webhook", webAddress(), func(n *rawNotify) *val[string] { return &n.webhook }),
		key("secret", named(envNames("a secret")), func(n *rawNotify) *val[string] { return &n.secret }),
	)...)
	return o
}

// webAddressPattern is what the address of a webhook looks like. A user or a
// password has no place in it: the file is in Temporal's history.
const webAddressPattern = `^https?://[A-Za-z0-9._:\[\]-]+([/?#][^\s{}]*)?$`

var webAddressRE = regexp.MustCompile(webAddressPattern)

// webAddress is a URL that a POST can be sent to.
func webAddress() kind[string] {
	f := filled("an address")
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			s, ok := f.read(p, n)
			if !ok || webAddressRE.MatchString(s) {
				return s, ok
			}
			hint := "write it as https://host/path"
			switch {
			case hasExpr(s):
				hint = "write the address out: expressions are not possible here"
			case strings.Contains(s, "@"):
				hint = "a password has no place in a file; send a secret along: secret: NAME"
			}
			p.errorf(n, hint, "expected the address of a webhook, found %s", found(n))
			return "", false
		},
		schema: func(schemas) schema { return schema{"type": "string", "pattern": webAddressPattern} },
	}
}

// notify checks who is told, and freezes it.
func (c *checker) notify(in val[rawNotify]) *Notify {
	if !in.given() {
		return nil
	}
	raw := in.v
	c.useSecrets(append(raw.secrets.v, raw.secret)...)
	return &Notify{Command: raw.command.v, Secrets: values(raw.secrets.v), Webhook: raw.webhook.v, Secret: raw.secret.v}
}
