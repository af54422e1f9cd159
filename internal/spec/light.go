package spec

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
	"belay.run/internal/task"
	"belay.run/internal/task/types"
)

// usesNoop is the type of step that does nothing and succeeds.
const usesNoop = "noop"

// builtin are the types that a step may use. They are only asked what they take:
// no file makes them touch anything.
var builtin = sync.OnceValue(func() *task.Registry { return types.Builtin(types.Tools{}) })

// Types are the names of what a step may use.
func Types() []string { return builtinNames() }

func builtinNames() []string {
	all := builtin().Types()
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.Name()
	}
	slices.Sort(names)
	return names
}

// usesType is a built-in type of step.
func usesType() kind[string] { return word(builtinNames()...) }

// parameters is the map that a built-in step is given. What may be in it its type
// says, see fillWith.
func parameters() kind[[]entry[*yaml.Node]] {
	return kind[[]entry[*yaml.Node]]{
		read: func(p *parser, n *yaml.Node) ([]entry[*yaml.Node], bool) {
			if n.Kind != yaml.MappingNode {
				p.errorf(n, "", "expected a map of parameters, found %s", found(n))
				return nil, false
			}
			var out []entry[*yaml.Node]
			for i := 0; i < len(n.Content); i += 2 {
				k, v := n.Content[i], resolve(n.Content[i+1])
				twice := slices.ContainsFunc(out, func(e entry[*yaml.Node]) bool { return e.key == k.Value })
				if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" || twice {
					continue // reported by strict
				}
				out = append(out, entry[*yaml.Node]{k.Value, k, val[*yaml.Node]{v, v}})
			}
			return out, true
		},
		schema: func(schemas) schema { return schema{"type": "object"} },
	}
}

// fillWith reads what a step is given by the parameters of its type: names,
// kinds, and whether all is there that has to be.
func (p *parser) fillWith(n *yaml.Node, into *rawStep) {
	t, known := builtin().Get(into.uses.v)
	if !known {
		return // it runs a script, or names a type that there is not
	}
	params := t.Params()
	given := map[string]bool{}
	into.params = map[string]any{}
	for _, e := range into.with.v {
		param := paramOf(params, e.key)
		if param == nil {
			given[p.unknownParam(t, e)] = true
			continue
		}
		given[e.key] = true
		if v, ok := paramKind(*param).read(p, e.val.v); ok {
			into.params[e.key] = v
		}
	}
	at := n
	if into.with.given() {
		at = into.with.node
	} else if hasKey(n, "with") {
		return // it is no map, which is said
	}
	for _, param := range params {
		if param.Required && !given[param.Name] {
			p.errorf(at, "add "+param.Name+": to with", "uses: %s needs the parameter %s", t.Name(), param.Name)
		}
	}
}

func hasKey(n *yaml.Node, name string) bool {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

func paramOf(params []task.Param, name string) *task.Param {
	if i := slices.IndexFunc(params, func(p task.Param) bool { return p.Name == name }); i >= 0 {
		return &params[i]
	}
	return nil
}

func paramNames(params []task.Param) []string {
	names := make([]string, len(params))
	for i, p := range params {
		names[i] = p.Name
	}
	return names
}

// unknownParam reports a parameter that the type has not, and returns the one
// that was probably meant.
func (p *parser) unknownParam(t task.Type, e entry[*yaml.Node]) (meant string) {
	names := paramNames(t.Params())
	hint := "it has " + strings.Join(names, ", ")
	if len(names) == 0 {
		hint = "it has none"
	}
	if meant = expr.Nearest(e.key, names); meant != "" {
		hint = "did you mean " + meant + "?"
	}
	p.errorf(e.at, hint, "unknown parameter %s of uses: %s", quote(e.key), t.Name())
	return meant
}

// soleRE is a value that is one expression. Only the checker can tell whether it
// is one that holds.
var soleRE = regexp.MustCompile(`(?s)^\s*\$\{\{.*\}\}\s*$`)

// expression is a kind whose values may also come of an expression: they are read
// as texts then.
func expression[V any](of kind[V]) kind[any] {
	return kind[any]{
		read: func(p *parser, n *yaml.Node) (any, bool) {
			if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && soleRE.MatchString(n.Value) {
				return n.Value, p.noNUL(n)
			}
			return of.read(p, n)
		},
		schema: func(defs schemas) schema {
			return schema{"anyOf": []any{of.schema(defs), schema{"type": "string", "pattern": `^\s*\$\{\{`}}}
		},
	}
}

// paramKind is the kind of a parameter's values in a file.
func paramKind(param task.Param) kind[any] {
	switch param.Kind {
	case task.Number:
		return expression(wholeNumber())
	case task.Truth:
		return expression(boolean())
	case task.Duration:
		return expression(durationText())
	case task.Texts:
		return textsOrOne()
	case task.Table:
		return table()
	case task.Secret:
		return anyOf(named(envNames("a secret")))
	case task.Text:
	}
	if len(param.Enum) > 0 {
		return expression(word(param.Enum...))
	}
	return anyOf(text())
}

// anyOf is a kind of whatever values.
func anyOf[V any](of kind[V]) kind[any] {
	return kind[any]{
		read:   func(p *parser, n *yaml.Node) (any, bool) { return of.read(p, n) },
		schema: of.schema,
	}
}

// wholeNumber is a whole number in plain decimal form.
func wholeNumber() kind[int] {
	return kind[int]{
		read: func(p *parser, n *yaml.Node) (int, bool) {
			if n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!int" || n.ShortTag() == "!!float") {
				if i, err := decimal(n.Value); err == nil {
					return i, true
				}
			}
			p.errorf(n, "write it in decimal digits", "expected a whole number, found %s", found(n))
			return 0, false
		},
		schema: func(schemas) schema { return schema{"type": "integer"} },
	}
}

// durationText is a duration, handed on as it is written.
func durationText() kind[string] {
	d := duration(0)
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			_, ok := d.read(p, n)
			return n.Value, ok
		},
		schema: d.schema,
	}
}

// textsOrOne is a list of texts, or one of them.
func textsOrOne() kind[any] {
	one := literal()
	many := listOf(one, "values")
	return kind[any]{
		read: func(p *parser, n *yaml.Node) (any, bool) {
			if n.Kind == yaml.ScalarNode {
				s, ok := one.read(p, n)
				return []any{s}, ok
			}
			list, ok := many.read(p, n)
			out := make([]any, len(list))
			for i, v := range list {
				out[i] = v.v
			}
			return out, ok
		},
		schema: func(defs schemas) schema {
			return schema{"anyOf": []any{one.schema(defs), many.schema(defs)}}
		},
	}
}

// table is text by name.
func table() kind[any] {
	one := literal()
	return kind[any]{
		read: func(p *parser, n *yaml.Node) (any, bool) {
			if n.Kind != yaml.MappingNode {
				p.errorf(n, "", "expected a map of texts, found %s", found(n))
				return nil, false
			}
			out := make(map[string]any, len(n.Content)/2)
			good := true
			for i := 0; i < len(n.Content); i += 2 {
				s, ok := one.read(p, resolve(n.Content[i+1]))
				good = good && ok
				out[n.Content[i].Value] = s
			}
			return out, good
		},
		schema: func(defs schemas) schema {
			return schema{"type": "object", "additionalProperties": one.schema(defs)}
		},
	}
}

// describeWith adds to the schema of a built-in step what each type takes.
func describeWith(defs schemas, s schema) {
	var rules []any
	for _, name := range builtinNames() {
		t, _ := builtin().Get(name)
		properties, required := schema{}, []string{}
		for _, param := range t.Params() {
			described := paramKind(param).schema(defs)
			described["description"] = param.Doc
			properties[param.Name] = described
			if param.Required {
				required = append(required, param.Name)
			}
		}
		slices.Sort(required)
		with := schema{"type": "object", "properties": properties, "additionalProperties": false, "required": required}
		then := schema{"properties": schema{"with": with}}
		if len(required) > 0 {
			then["required"] = []string{"with"}
		}
		rules = append(rules, schema{"if": schema{"properties": schema{"uses": schema{"const": name}}, "required": []string{"uses"}}, "then": then})
	}
	s["allOf"] = rules
}
