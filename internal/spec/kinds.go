package spec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
)

// kind is a kind of value in a pipeline file: how it is read and checked by
// itself, and how the JSON Schema describes it. The two stand side by side so
// that they cannot drift.
type kind[V any] struct {
	// read reports what is wrong and returns false where it got no value.
	read   func(p *parser, n *yaml.Node) (V, bool)
	schema func(defs schemas) schema
}

// val is a value and where it stands. Its zero value is one that is not given.
type val[V any] struct {
	v    V
	node *yaml.Node
}

func (v val[V]) given() bool { return v.node != nil }

// or is the value, or otherwise where it is not given.
func (v val[V]) or(otherwise V) V {
	if v.given() {
		return v.v
	}
	return otherwise
}

// entry is a key of a free map and its value.
type entry[V any] struct {
	key string
	at  *yaml.Node
	val val[V]
}

// field is one key that an object of type T may have.
type field[T any] struct {
	name string
	// forms are the forms of the object that may have it; 0 is every form.
	forms    form
	required bool
	read     func(p *parser, n *yaml.Node, into *T)
	schema   func(defs schemas) schema
}

// key makes a field out of its kind, and of where its value goes.
func key[T, V any](name string, k kind[V], at func(*T) *val[V]) field[T] {
	return field[T]{
		name:   name,
		schema: k.schema,
		read: func(p *parser, n *yaml.Node, into *T) {
			n = resolve(n)
			if v, ok := k.read(p, n); ok {
				*at(into) = val[V]{v, n}
			}
		},
	}
}

// must marks a field as one that has to be there.
func must[T any](f field[T]) field[T] {
	f.required = true
	return f
}

// only limits fields to some forms of their object.
func only[T any](forms form, fields ...field[T]) []field[T] {
	for i := range fields {
		fields[i].forms = forms
	}
	return fields
}

// form is a form of an object that comes in several, such as a step that runs
// a script or one that holds others; a set of them is their sum.
type form uint8

// object is a kind of map with fixed keys.
type object[T any] struct {
	// name is how messages call it, def its name in the schema.
	name, def string
	fields    []field[T]
	// later are keys that a later version will know, never those that would be
	// a mistake for ever, with the reason.
	later []string
	never map[string]string
	// free is the prefix of keys that may be there for any use.
	free string
	// forms are the forms, with the key that tells each.
	forms []objectForm
}

type objectForm struct {
	form form
	key  string
	// name is how messages call an object of this form, def its schema.
	name, def string
	// hint says what to do about a key that this form does not have.
	hint string
}

func (o *object[T]) kind() kind[T] {
	return kind[T]{read: o.read, schema: o.describe}
}

func (o *object[T]) read(p *parser, n *yaml.Node) (T, bool) {
	var out T
	if n.Kind != yaml.MappingNode {
		p.errorf(n, "it is a map with the keys "+o.some(), "expected %s, found %s", o.name, found(n))
		return out, false
	}
	of, ok := o.formOf(p, n)
	given := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if given[k.Value] || k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
			continue // reported by strict
		}
		given[k.Value] = true
		if meant := o.readKey(p, k, v, of, &out); meant != "" {
			given[meant] = true // it is not missing, it is misspelt
		}
	}
	for _, f := range o.fields {
		if f.required && !given[f.name] {
			p.errorf(n, "add "+f.name+":", "%s has no %s", o.name, f.name)
		}
	}
	return out, ok
}

// readKey reads a key, or reports why not. It returns the key that was probably
// meant by one that there is not.
func (o *object[T]) readKey(p *parser, k, v *yaml.Node, of objectForm, into *T) (meant string) {
	if i := slices.IndexFunc(o.fields, func(f field[T]) bool { return f.name == k.Value }); i >= 0 {
		f := o.fields[i]
		if of.form != 0 && f.forms != 0 && f.forms&of.form == 0 {
			p.errorf(k, of.hint, "%s: not possible in %s", k.Value, of.name)
			return ""
		}
		f.read(p, v, into)
		return ""
	}
	switch {
	case slices.Contains(o.later, k.Value):
		p.errorf(k, "remove it", "%s: not supported in this version", k.Value)
		return ""
	case o.never[k.Value] != "":
		p.errorf(k, "", "%s: %s", k.Value, o.never[k.Value])
		return ""
	case o.free != "" && strings.HasPrefix(k.Value, o.free):
		return ""
	}
	if p.full() {
		p.dropped++
		return ""
	}
	hint := "it has the keys " + o.some()
	meant = expr.Nearest(k.Value, o.names())
	if meant != "" {
		hint = "did you mean " + meant + "?"
	}
	p.errorf(k, hint, "unknown key %s in %s", quote(k.Value), o.name)
	return meant
}

// formOf finds out which form n has, and reports one that has none or several.
func (o *object[T]) formOf(p *parser, n *yaml.Node) (objectForm, bool) {
	if len(o.forms) == 0 {
		return objectForm{}, true
	}
	var has []objectForm
	var at *yaml.Node
	explained := false
	for i := 0; i < len(n.Content); i += 2 {
		k := n.Content[i]
		for _, f := range o.forms {
			if k.Value == f.key && !slices.Contains(has, f) {
				has, at = append(has, f), k
			}
		}
		// These are reported by themselves.
		explained = explained || k.Tag == "!!merge" || o.never[k.Value] != ""
	}
	switch len(has) {
	case 1:
		return has[0], true
	case 0:
		if !explained {
			p.errorf(n, "", "%s needs one of %s", o.name, joined(o.formKeys(), "or"))
		}
		return objectForm{}, false
	}
	p.errorf(at, "remove one of the two", "%s has %s and %s, it can have only one of them", o.name, has[0].key, has[1].key)
	return objectForm{}, false
}

func (o *object[T]) formKeys() []string {
	keys := make([]string, len(o.forms))
	for i, f := range o.forms {
		keys[i] = f.key
	}
	return keys
}

func (o *object[T]) names() []string {
	names := make([]string, 0, len(o.fields)+len(o.later))
	for _, f := range o.fields {
		names = append(names, f.name)
	}
	return append(names, o.later...)
}

// some lists the keys of the object.
func (o *object[T]) some() string {
	names := make([]string, len(o.fields))
	for i, f := range o.fields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

// listOf is a list of at least one value.
func listOf[V any](of kind[V], what string) kind[[]val[V]] {
	return kind[[]val[V]]{
		read: func(p *parser, n *yaml.Node) ([]val[V], bool) {
			if n.Kind != yaml.SequenceNode {
				hint := "write a list, in which each begins with -"
				if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
					hint = "write [" + clip(n.Value) + "]"
				}
				p.errorf(n, hint, "expected a list of %s, found %s", what, found(n))
				return nil, false
			}
			if len(n.Content) == 0 {
				p.errorf(n, "add one, or remove the key", "the list of %s is empty", what)
			}
			out := make([]val[V], 0, len(n.Content))
			for _, c := range n.Content {
				c = resolve(c)
				if v, ok := of.read(p, c); ok {
					out = append(out, val[V]{v, c})
				}
			}
			return out, true
		},
		schema: func(defs schemas) schema {
			return schema{"type": "array", "minItems": 1, "items": of.schema(defs)}
		},
	}
}

// mapOf is a map with keys of the user's choice.
func mapOf[V any](names naming, of kind[V], what string) kind[[]entry[V]] {
	return kind[[]entry[V]]{
		read: func(p *parser, n *yaml.Node) ([]entry[V], bool) {
			if n.Kind != yaml.MappingNode {
				p.errorf(n, "", "expected a map of %s, found %s", what, found(n))
				return nil, false
			}
			var out []entry[V]
			seen := map[string]bool{}
			for i := 0; i < len(n.Content); i += 2 {
				k, v := n.Content[i], resolve(n.Content[i+1])
				if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" || seen[k.Value] {
					continue // reported by strict
				}
				seen[k.Value] = true
				names.check(p, k, k.Value)
				if got, ok := of.read(p, v); ok {
					out = append(out, entry[V]{k.Value, k, val[V]{got, v}})
				}
			}
			return out, true
		},
		schema: func(defs schemas) schema {
			return schema{
				"type":                 "object",
				"propertyNames":        names.schema(),
				"additionalProperties": of.schema(defs),
			}
		},
	}
}

// resolve is what a node stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// found describes a node, for messages.
func found(n *yaml.Node) string {
	n = resolve(n)
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!bool":
		return n.Value
	case "!!int", "!!float":
		return "the number " + clip(n.Value)
	}
	return quote(n.Value)
}

// quote is a text in quotes, cut where it is long.
func quote(s string) string { return fmt.Sprintf("%q", clip(s)) }

func clip(s string) string {
	const limit = 60
	r := []rune(s)
	if len(r) <= limit {
		return s
	}
	return string(r[:limit]) + "…"
}

// joined is "a, b or c".
func joined(list []string, word string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " " + word + " " + list[last]
}
