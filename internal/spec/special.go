package spec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
)

// version is the version of the file's format, of which there is one.
func version() kind[string] {
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			if n.Kind != yaml.ScalarNode || n.Value != "1" {
				p.errorf(n, "write version: 1", "this version of Belay reads files of version 1, found %s", found(n))
				return "", false
			}
			return n.Value, true
		},
		schema: func(schemas) schema { return schema{"enum": []any{1, "1"}} },
	}
}

func env() kind[[]entry[string]] {
	return mapOf(envNames("a variable"), literal(), "variables")
}

// condition is a `when`.
func condition() kind[string] {
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			if n.Kind != yaml.ScalarNode || !slices.Contains([]string{"!!str", "!!timestamp", "!!bool"}, n.ShortTag()) {
				p.errorf(n, "", "expected a condition, found %s", found(n))
				return "", false
			}
			if strings.TrimSpace(n.Value) == "" {
				p.errorf(n, "remove the key", "expected a condition, found an empty text")
				return "", false
			}
			return n.Value, true
		},
		schema: func(schemas) schema {
			return schema{"anyOf": []any{schema{"type": "string", "pattern": `\S`}, schema{"type": "boolean"}}}
		},
	}
}

// script is the text of a shell script, in which no expression may stand.
func script() kind[string] {
	f := filled("a script")
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			s, ok := f.read(p, n)
			if ok && strings.Contains(s, "${{") {
				p.expressionInScript(n, s)
				return s, false
			}
			return s, ok
		},
		schema: func(schemas) schema {
			return schema{"type": "string", "pattern": `\S`, "not": schema{"pattern": `\$\{\{`}}
		},
	}
}

func (p *parser) expressionInScript(n *yaml.Node, s string) {
	at := strings.Index(s, "${{")
	inner, _, closed := strings.Cut(s[at+len("${{"):], "}}")
	inner = strings.TrimSpace(inner)
	hint := `hand the value over by env, and read it as "$NAME" in the script`
	if closed && inner != "" && !strings.Contains(inner, "\n") {
		name := strings.ToUpper(inner[strings.LastIndexAny(inner, ". ")+1:])
		if !envNames("").re.MatchString(name) {
			name = "VALUE"
		}
		hint = fmt.Sprintf(`hand it over by env: {%s: "${{ %s }}"}, and read it as "$%s" in the script`, name, clip(inner), name)
	}
	p.add(p.within(n, at), hint, "expressions are not possible in scripts: what they hold could be run as shell code")
}

// commands is a script, or a list of scripts, each with a timeout where wanted.
func commands() kind[[]val[rawCommand]] {
	single, object := script(), commandObject().kind()
	one := func(p *parser, n *yaml.Node) (rawCommand, bool) {
		if n.Kind == yaml.MappingNode {
			return object.read(p, n)
		}
		s, ok := single.read(p, n)
		return rawCommand{command: val[string]{s, n}}, ok
	}
	list := someOf(kind[rawCommand]{read: one}, "commands")
	return kind[[]val[rawCommand]]{
		read: func(p *parser, n *yaml.Node) ([]val[rawCommand], bool) {
			if n.Kind == yaml.SequenceNode {
				return list.read(p, n)
			}
			if n.Kind == yaml.MappingNode {
				p.errorf(n, "write a list: - {command: …, timeout: …}", "expected a script or a list of commands, found a map")
				return nil, false
			}
			c, ok := one(p, n)
			return []val[rawCommand]{{c, n}}, ok
		},
		schema: func(defs schemas) schema {
			text := single.schema(defs)
			return schema{"anyOf": []any{text, schema{
				"type": "array", "minItems": 1, "items": schema{"anyOf": []any{text, object.schema(defs)}},
			}}}
		},
	}
}

// onFailure is an action for every class of failure, or one for each.
func onFailure() kind[OnFailure] {
	one, object := action(), onFailureObject().kind()
	return kind[OnFailure]{
		read: func(p *parser, n *yaml.Node) (OnFailure, bool) {
			if n.Kind != yaml.MappingNode {
				a, ok := one.read(p, n)
				return OnFailure{Timeout: a, Error: a, Lost: a, Default: a}, ok
			}
			m, ok := object.read(p, n)
			otherwise := m.otherwise.or(Abort)
			return OnFailure{
				Timeout: m.timeout.or(otherwise), Error: m.err.or(otherwise), Lost: m.lost.or(otherwise), Default: otherwise,
			}, ok
		},
		schema: func(defs schemas) schema {
			return schema{"anyOf": []any{one.schema(defs), object.schema(defs)}}
		},
	}
}

type rawOnFailure struct {
	timeout, err, lost, otherwise val[Action]
}

func onFailureObject() *object[rawOnFailure] {
	return &object[rawOnFailure]{
		name: "on_failure",
		def:  "onFailure",
		fields: []field[rawOnFailure]{
			key("timeout", action(), func(o *rawOnFailure) *val[Action] { return &o.timeout }),
			key("error", action(), func(o *rawOnFailure) *val[Action] { return &o.err }),
			key("lost", action(), func(o *rawOnFailure) *val[Action] { return &o.lost }),
			key("default", action(), func(o *rawOnFailure) *val[Action] { return &o.otherwise }),
		},
	}
}

func action() kind[Action] {
	return word(Abort, Continue, Ignore, Rollback)
}

// anyScalar is a text, number or boolean, read later.
func anyScalar() kind[*yaml.Node] {
	l := literal()
	return kind[*yaml.Node]{
		read: func(p *parser, n *yaml.Node) (*yaml.Node, bool) {
			_, ok := l.read(p, n)
			return n, ok
		},
		schema: l.schema,
	}
}

// hasExpr reports whether a text holds an expression.
func hasExpr(s string) bool { return expr.Has(s) }
