package spec

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
)

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
	// also, where it is set, reads what depends on several keys; extend adds that
	// to the schema of the form extended.
	also     func(p *parser, n *yaml.Node, into *T)
	extended form
	extend   func(defs schemas, s schema)
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
	if o.also != nil {
		o.also(p, n, &out)
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
