package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
)

// scope is what an expression may read at one place of the file: the names that
// it may begin with. Groups that have no value there are absent, with a reason.
type scope struct {
	names  map[string]*expr.Name
	absent map[string]string
}

// Member implements expr.Members.
func (s *scope) Member(name string) (*expr.Name, *expr.Error) {
	if n := s.names[name]; n != nil {
		return n, nil
	}
	if why := s.absent[name]; why != "" {
		return nil, &expr.Error{Message: name + " cannot be read here: " + why}
	}
	switch name {
	case "secrets":
		return nil, &expr.Error{
			Message: "secrets cannot be read in expressions",
			Hint:    "list the secret in the secrets of the step, where it is a variable",
		}
	case "github", "job", "jobs", "runner", "vars":
		return nil, &expr.Error{
			Message: "unknown name " + name,
			Hint:    "the names are " + strings.Join(s.Names(), ", "),
		}
	}
	return nil, nil
}

// Names implements expr.Members.
func (s *scope) Names() []string { return slices.Sorted(maps.Keys(s.names)) }

// Noun implements expr.Members.
func (s *scope) Noun() string { return "name" }

// with is s and more names. The maps of s are not changed.
func (s *scope) with(names map[string]*expr.Name) *scope {
	out := &scope{names: maps.Clone(s.names), absent: s.absent}
	maps.Copy(out.names, names)
	return out
}

func value(k expr.Kind) *expr.Name { return &expr.Name{Kind: k} }

// group is a fixed group of names, each called noun.
func group(noun string, names map[string]*expr.Name) *expr.Name {
	return &expr.Name{Kind: expr.KindGroup, Members: expr.NewMembers(noun, names, slices.Sorted(maps.Keys(names)))}
}

// lazy is a group whose names are looked up by functions.
type lazy struct {
	noun   string
	member func(name string) (*expr.Name, *expr.Error)
	names  func() []string
}

// Member implements expr.Members.
func (l lazy) Member(name string) (*expr.Name, *expr.Error) { return l.member(name) }

// Names implements expr.Members.
func (l lazy) Names() []string { return l.names() }

// Noun implements expr.Members.
func (l lazy) Noun() string { return l.noun }

func lazyGroup(l lazy) *expr.Name { return &expr.Name{Kind: expr.KindGroup, Members: l} }

// base is what every expression of the file may read, but the source.
func (c *checker) base() *scope {
	return &scope{
		names: map[string]*expr.Name{
			"inputs":  c.inputNames(),
			"tenant":  value(expr.KindText),
			"project": value(expr.KindText),
			"run": group("name", map[string]*expr.Name{
				"id": value(expr.KindText), "key": value(expr.KindText),
				"attempt": value(expr.KindInt), "scheduled_at": value(expr.KindText),
			}),
			"pipeline": group("name", map[string]*expr.Name{"name": value(expr.KindText), "status": value(expr.KindStatus)}),
		},
		absent: map[string]string{
			"env":    "it is what is being made",
			"stages": "no stage has run yet",
			"stage":  "it is outside of a stage",
			"steps":  "no step has run yet",
			"matrix": "the stage has no matrix",
		},
	}
}

// inputNames are the inputs, which count as used when they are looked up.
func (c *checker) inputNames() *expr.Name {
	kinds := map[string]expr.Kind{intType: expr.KindInt, numberType: expr.KindNumber, boolType: expr.KindBool}
	names := map[string]*expr.Name{}
	order := make([]string, len(c.file.Inputs))
	for i, in := range c.file.Inputs {
		names[in.Name] = value(kinds[in.Type])
		order[i] = in.Name
	}
	return lazyGroup(lazy{
		noun: "input",
		member: func(name string) (*expr.Name, *expr.Error) {
			c.usedInputs[name] = true
			return names[name], nil
		},
		names: func() []string { return order },
	})
}

// envGroup are the variables of these lists.
func envGroup(lists ...[]entry[string]) *expr.Name {
	names := map[string]*expr.Name{}
	for _, l := range lists {
		for _, e := range l {
			names[e.key] = value(expr.KindText)
		}
	}
	return group("variable", names)
}

// ownEnv are the variables that the env of a step may read: not its own, which
// are made when the others are known.
func ownEnv(outer *expr.Name, own []entry[string]) *expr.Name {
	return lazyGroup(lazy{
		noun: outer.Members.Noun(),
		member: func(name string) (*expr.Name, *expr.Error) {
			n, why := outer.Members.Member(name)
			if n == nil && why == nil && slices.ContainsFunc(own, func(e entry[string]) bool { return e.key == name }) {
				why = &expr.Error{
					Message: fmt.Sprintf("the variable %s stands in the same env, expressions read those of the stage and the pipeline", name),
					Hint:    "repeat its value, or set it in the stage",
				}
			}
			return n, why
		},
		names: outer.Members.Names,
	})
}

// matrixNames are the keys of a matrix.
func (c *checker) matrixNames(m rawMatrix) *expr.Name {
	names := map[string]*expr.Name{}
	for _, k := range m.keys {
		names[k.key] = value(expr.KindText)
	}
	for _, inc := range m.include.v {
		for _, k := range inc.v {
			names[k.key] = value(expr.KindText)
		}
	}
	order := slices.Sorted(maps.Keys(names))
	read := map[string]bool{}
	for _, k := range m.keys {
		c.keys = append(c.keys, matrixKey{k.key, k.at, read})
	}
	return lazyGroup(lazy{
		noun: "matrix key",
		member: func(name string) (*expr.Name, *expr.Error) {
			read[name] = true
			return names[name], nil
		},
		names: func() []string { return order },
	})
}

// matrixKey is a key of a matrix, and which keys of it something reads.
type matrixKey struct {
	name string
	at   *yaml.Node
	read map[string]bool
}
