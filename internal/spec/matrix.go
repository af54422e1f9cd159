package spec

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/run"
)

// Bounds of a matrix.
const (
	// maxLegs is how many legs it may have, and how many includes and excludes.
	maxLegs = 256
	// maxKeys is how many keys a leg may have.
	maxKeys = 16
)

// The keys of a matrix that are no keys of its legs.
const (
	includeKey     = "include"
	excludeKey     = "exclude"
	maxParallelKey = "max_parallel"
	failFastKey    = "fail_fast"
)

// matrix is a map of lists, with the keys above beside them.
func matrix() kind[rawMatrix] {
	names, values := nodeNames("a matrix key"), someOf(legValue(), "values")
	legs := listOf(mapOf(names, legValue(), "matrix keys"), "legs")
	special := &object[rawMatrix]{
		fields: []field[rawMatrix]{
			key(includeKey, legs, func(m *rawMatrix) *val[[]val[[]entry[string]]] { return &m.include }),
			key(excludeKey, legs, func(m *rawMatrix) *val[[]val[[]entry[string]]] { return &m.exclude }),
			key(maxParallelKey, integer(maxLegs), func(m *rawMatrix) *val[int] { return &m.maxParallel }),
			key(failFastKey, boolean(), func(m *rawMatrix) *val[bool] { return &m.failFast }),
		},
	}
	return kind[rawMatrix]{
		read: func(p *parser, n *yaml.Node) (rawMatrix, bool) {
			var m rawMatrix
			if n.Kind != yaml.MappingNode {
				p.errorf(n, "write matrix: {os: [linux, darwin]}", "expected a map of lists, found %s", found(n))
				return m, false
			}
			seen := map[string]bool{}
			for i := 0; i < len(n.Content); i += 2 {
				k, v := n.Content[i], n.Content[i+1]
				if seen[k.Value] || k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
					continue // reported by strict
				}
				seen[k.Value] = true
				if slices.Contains(special.names(), k.Value) {
					special.readKey(p, k, v, objectForm{}, &m)
					continue
				}
				v = resolve(v)
				if list, ok := values.read(p, v); names.check(p, k, k.Value) && ok {
					m.keys = append(m.keys, entry[[]val[string]]{k.Value, k, val[[]val[string]]{list, v}})
				}
			}
			return m, true
		},
		schema: func(defs schemas) schema {
			properties := schema{}
			for _, f := range special.fields {
				properties[f.name] = f.schema(defs)
			}
			return schema{
				"type": "object", "propertyNames": names.schema(), "properties": properties,
				"additionalProperties": values.schema(defs),
			}
		},
	}
}

// legValue is the value of a matrix key: text as it is written in the file.
func legValue() kind[string] {
	const limit = 100
	l := literal()
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			s, ok := l.read(p, n)
			switch {
			case !ok:
				return "", false
			case s == "" || len(s) > limit || strings.ContainsAny(s, "\n\r\t"):
				p.errorf(n, "", "a value of a matrix is one line of 1 to %d bytes, found %s", limit, quote(s))
				return "", false
			case hasExpr(s):
				p.errorf(n, "write the values out", "expressions are not possible in a matrix")
				return "", false
			}
			return s, true
		},
		schema: func(defs schemas) schema { return l.schema(defs) },
	}
}

// expand makes the legs of a matrix: all combinations in the order of the file,
// less those that match an exclude, and then the includes. An include whose
// values for the matrix's keys agree with legs adds its other keys to these;
// else it is a leg of its own.
func (p *parser) expand(m val[rawMatrix]) []run.Leg {
	if !p.smallMatrix(m.v) {
		return nil
	}
	original, ok := p.combine(m)
	if !ok || len(original)+len(m.v.include.v) == 0 && len(m.node.Content) > 0 {
		return nil // what is wrong with it has been said
	}
	original = p.exclude(m.v, original)
	legs := make([]run.Leg, len(original))
	for i, l := range original {
		legs[i] = maps.Clone(l)
	}
	for _, inc := range m.v.include.v {
		legs = extend(legs, original, legOf(inc.v))
	}
	return p.distinct(m.node, legs)
}

// smallMatrix reports whether expanding a matrix is bounded.
func (p *parser) smallMatrix(m rawMatrix) bool {
	keys := map[string]bool{}
	for _, k := range m.keys {
		keys[k.key] = true
	}
	for _, list := range []val[[]val[[]entry[string]]]{m.include, m.exclude} {
		if len(list.v) > maxLegs {
			p.errorf(list.node, "split the stage", "the list has %d legs, at most %d are allowed", len(list.v), maxLegs)
			return false
		}
		for _, leg := range list.v {
			for _, k := range leg.v {
				keys[k.key] = true
			}
		}
	}
	if len(keys) > maxKeys {
		p.errorf(m.at(), "split the stage", "the matrix has %d keys, at most %d are allowed", len(keys), maxKeys)
		return false
	}
	return true
}

// at is where the first key of the matrix stands.
func (m rawMatrix) at() *yaml.Node {
	for _, k := range m.keys {
		return k.at
	}
	return m.include.node
}

func (p *parser) combine(m val[rawMatrix]) ([]run.Leg, bool) {
	const tooMany = 16 * maxLegs // before excludes
	if len(m.v.keys) == 0 {
		return nil, true
	}
	legs := []run.Leg{{}}
	for _, k := range m.v.keys {
		if len(legs)*len(k.val.v) > tooMany {
			p.errorf(m.node, "split the stage", "the matrix has far more than %d legs", maxLegs)
			return nil, false
		}
		var once []string
		for _, v := range k.val.v {
			if slices.Contains(once, v.v) {
				p.errorf(v.node, "remove one of the two", "the value %s stands twice in %s", quote(v.v), k.key)
				continue
			}
			once = append(once, v.v)
		}
		var next []run.Leg
		for _, l := range legs {
			for _, v := range once {
				leg := maps.Clone(l)
				leg[k.key] = v
				next = append(next, leg)
			}
		}
		legs = next
	}
	return legs, true
}

func (p *parser) exclude(m rawMatrix, legs []run.Leg) []run.Leg {
	for _, ex := range m.exclude.v {
		match := legOf(ex.v)
		before := len(legs)
		legs = slices.DeleteFunc(legs, func(l run.Leg) bool { return len(match) > 0 && agrees(l, match) })
		if len(legs) == before {
			p.warnf(ex.node, "remove it, or correct its values", "this exclude matches no leg")
		}
	}
	return legs
}

func extend(legs, original []run.Leg, add run.Leg) []run.Leg {
	extended := false
	for i, l := range original {
		if overwrites(l, add) {
			continue
		}
		maps.Copy(legs[i], add)
		extended = true
	}
	if !extended {
		legs = append(legs, add)
	}
	return legs
}

// overwrites reports whether add would change a value of l.
func overwrites(l, add run.Leg) bool {
	for k, v := range add {
		if old, ok := l[k]; ok && old != v {
			return true
		}
	}
	return false
}

func agrees(l, with run.Leg) bool {
	for k, v := range with {
		if l[k] != v {
			return false
		}
	}
	return true
}

func legOf(entries []entry[string]) run.Leg {
	l := run.Leg{}
	for _, e := range entries {
		l[e.key] = e.val.v
	}
	return l
}

func (p *parser) distinct(n *yaml.Node, legs []run.Leg) []run.Leg {
	seen := map[string]bool{}
	for _, l := range legs {
		name := l.String()
		if seen[name] {
			p.errorf(n, "remove one of the two", "the matrix has the leg %s twice", name)
			return nil
		}
		seen[name] = true
	}
	switch {
	case len(legs) == 0:
		p.errorf(n, "add values, or remove excludes", "the matrix has no legs")
	case len(legs) > maxLegs:
		p.errorf(n, "split the stage", "the matrix has %d legs, at most %d are allowed", len(legs), maxLegs)
		return nil
	}
	return legs
}
