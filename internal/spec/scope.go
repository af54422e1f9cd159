package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
	"belay.run/internal/run"
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

// stageNames are the stages that a stage may read: those it needs, and what
// these need. A nil visible means all.
func (c *checker) stageNames(self string, visible map[string]bool) *expr.Name {
	return lazyGroup(lazy{
		noun: "stage",
		member: func(name string) (*expr.Name, *expr.Error) {
			s := c.stages[name]
			switch {
			case s == nil:
				return nil, nil
			case name == self:
				return nil, &expr.Error{
					Message: fmt.Sprintf("the stage %s cannot read itself as stages.%s", name, name),
					Hint:    "read steps and stage",
				}
			case visible != nil && !visible[name]:
				return nil, &expr.Error{
					Message: fmt.Sprintf("the stage %s need not have run when this is read", name),
					Hint:    fmt.Sprintf("add it to the needs of %s", self),
				}
			}
			return c.stageName(name), nil
		},
		names: func() []string {
			if visible == nil {
				return slices.Sorted(maps.Keys(c.stages))
			}
			return slices.Sorted(maps.Keys(visible))
		},
	})
}

// stageName is what stages.NAME holds.
func (c *checker) stageName(name string) *expr.Name {
	if n := c.stageCache[name]; n != nil {
		return n
	}
	s := c.stages[name]
	outputs := stageOutputs(s)
	names := map[string]*expr.Name{"status": value(expr.KindStatus)}
	if s.matrix.given() {
		names["legs"] = c.legNames(name, outputs)
	} else {
		steps := map[string]*expr.Name{}
		for _, st := range allSteps(s) {
			steps[st.name.v] = stepName(st)
		}
		names["outputs"] = outputs
		names["steps"] = group("step", steps)
	}
	n := group("name", names)
	if s.matrix.given() {
		n = lazyGroup(lazy{
			noun: "name",
			member: func(member string) (*expr.Name, *expr.Error) {
				if member == "outputs" || member == "steps" {
					return nil, &expr.Error{
						Message: fmt.Sprintf("the stage %s has a matrix, and so no %s of its own", name, member),
						Hint:    "read those of a leg: " + expr.Written("stages", name, "legs", c.someLeg(name), "outputs"),
					}
				}
				return names[member], nil
			},
			names: func() []string { return []string{"status", "legs"} },
		})
	}
	c.stageCache[name] = n
	return n
}

func (c *checker) legs(stage string) []run.Leg {
	if m := c.matrices[stage]; m != nil {
		return m.Legs
	}
	return nil
}

func (c *checker) someLeg(stage string) string {
	for _, l := range c.legs(stage) {
		return l.String()
	}
	return "key=value"
}

// legNames are the legs of a stage by their names, whose keys are sorted.
func (c *checker) legNames(stage string, outputs *expr.Name) *expr.Name {
	legs := map[string]*expr.Name{}
	for _, l := range c.legs(stage) {
		legs[l.String()] = group("name", map[string]*expr.Name{"status": value(expr.KindStatus), "outputs": outputs})
	}
	fixed := group("leg", legs)
	return lazyGroup(lazy{
		noun: "leg",
		member: func(name string) (*expr.Name, *expr.Error) {
			pairs := strings.Split(name, ",")
			slices.Sort(pairs)
			sorted := strings.Join(pairs, ",")
			if legs[name] == nil && legs[sorted] != nil {
				return nil, &expr.Error{Message: fmt.Sprintf("unknown leg %s: the keys of a leg are sorted", name), Hint: fmt.Sprintf("write %q", sorted)}
			}
			return legs[name], nil
		},
		names: fixed.Members.Names,
	})
}

// stageOutputs are the outputs of all steps of a stage under their own names.
func stageOutputs(s *rawStage) *expr.Name {
	by := map[string][]string{}
	for _, st := range allSteps(s) {
		for _, o := range st.outputs.v {
			by[o.v] = append(by[o.v], st.name.v)
		}
	}
	return lazyGroup(lazy{
		noun: "output",
		member: func(name string) (*expr.Name, *expr.Error) {
			switch from := by[name]; len(from) {
			case 0:
				return nil, nil
			case 1:
				return value(expr.KindText), nil
			default:
				hint := "read it as " + expr.Written("stages", s.name.v, "steps", from[0], "outputs", name)
				if s.matrix.given() {
					hint = "rename one of the two"
				}
				return nil, &expr.Error{
					Message: fmt.Sprintf("the output %s is declared by the steps %s", name, joined(from, "and")),
					Hint:    hint,
				}
			}
		},
		names: func() []string { return slices.Sorted(maps.Keys(by)) },
	})
}

// allSteps are the steps of a stage, groups and their members alike, and those
// of its finally.
func allSteps(s *rawStage) []rawStep {
	var out []rawStep
	for _, list := range [][]val[rawStep]{s.steps.v, s.finally.v} {
		for _, st := range list {
			out = append(out, st.v)
			for _, m := range st.v.parallel.v {
				out = append(out, m.v)
			}
		}
	}
	return out
}

// stepName is what steps.NAME holds.
func stepName(s rawStep) *expr.Name {
	names := map[string]*expr.Name{"status": value(expr.KindStatus)}
	if s.run.given() {
		outputs := map[string]*expr.Name{}
		for _, o := range s.outputs.v {
			outputs[o.v] = value(expr.KindText)
		}
		names["exit_code"] = value(expr.KindInt)
		names["outputs"] = group("output", outputs)
	}
	return group("name", names)
}

// stepNames are the steps of a stage that have run when the next one begins. It
// grows while the stage is checked.
type stepNames struct {
	before map[string]*expr.Name
	// all are the names of all steps of the stage, with their lines.
	all map[string]int
	// together are the steps of the parallel group that is being checked.
	together map[string]bool
}

// add makes the names of steps known.
func (s *stepNames) add(list []val[rawStep]) {
	for _, st := range list {
		if st.v.name.given() {
			s.all[st.v.name.v] = st.v.name.node.Line
		}
		s.add(st.v.parallel.v)
	}
}

// begin notes the members of the group that is being checked.
func (s *stepNames) begin(members []val[rawStep]) {
	s.together = make(map[string]bool, len(members))
	for _, m := range members {
		s.together[m.v.name.v] = true
	}
}

// ran makes a step, and the members of a group, readable for those after it.
func (s *stepNames) ran(st rawStep) {
	s.together = nil
	s.before[st.name.v] = stepName(st)
	for _, m := range st.parallel.v {
		s.before[m.v.name.v] = stepName(m.v)
	}
}

func (s *stepNames) group() *expr.Name {
	return lazyGroup(lazy{
		noun: "step",
		member: func(name string) (*expr.Name, *expr.Error) {
			if n := s.before[name]; n != nil {
				return n, nil
			}
			line, known := s.all[name]
			switch {
			case !known:
				return nil, nil
			case s.together[name]:
				return nil, &expr.Error{
					Message: fmt.Sprintf("the step %s runs at the same time", name),
					Hint:    "read it in a step after the group",
				}
			}
			return nil, &expr.Error{
				Message: fmt.Sprintf("the step %s (line %d) has not run when this is read", name, line),
				Hint:    "read only steps that stand before this one",
			}
		},
		names: func() []string { return slices.Sorted(maps.Keys(s.before)) },
	})
}
