package spec

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
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

// someOf is a list of at least one value.
func someOf[V any](of kind[V], what string) kind[[]val[V]] {
	list := listOf(of, what)
	return kind[[]val[V]]{
		read: func(p *parser, n *yaml.Node) ([]val[V], bool) {
			if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
				p.errorf(n, "", "expected a list of %s, found an empty one", what)
				return nil, false
			}
			return list.read(p, n)
		},
		schema: func(defs schemas) schema {
			s := list.schema(defs)
			s["minItems"] = 1
			return s
		},
	}
}

// listOf is a list of values.
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
			return schema{"type": "array", "items": of.schema(defs)}
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
	if n.Kind == yaml.MappingNode {
		return "a map"
	}
	if n.Kind == yaml.SequenceNode {
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
