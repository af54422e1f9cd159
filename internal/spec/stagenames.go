package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"belay.run/internal/expr"
	"belay.run/internal/run"
)

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
					Hint:    "add it to the needs of " + self,
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
// of its rollback and its finally.
func allSteps(s *rawStage) []rawStep {
	var out []rawStep
	for _, list := range [][]val[rawStep]{s.steps.v, s.rollback.v, s.finally.v} {
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
		names["exit_code"] = value(expr.KindInt)
	}
	if s.run.given() || s.outputs.given() {
		outputs := map[string]*expr.Name{}
		for _, o := range s.outputs.v {
			outputs[o.v] = value(expr.KindText)
		}
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
