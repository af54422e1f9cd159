package spec

import (
	"crypto/sha256"
	"slices"
	"strings"

	"belay.run/internal/expr"
)

// envLayer is an env, and what its expressions may read. In a list of them an
// inner one stands first, and hides the variables of the outer ones.
type envLayer struct {
	values map[string]string
	names  *scope
	// made are the variables that were looked at. Each may read a hundred others,
	// which read as many again: without it a small file takes hours.
	made map[string]made
}

// made is what the value of a variable comes to.
type made struct {
	refs []expr.Ref
	// sum is equal for two variables that are made in the same way.
	sum [sha256.Size]byte
}

func layerOf(entries []entry[string], names *scope) envLayer {
	return envLayer{values: envOf(entries), names: names, made: map[string]made{}}
}

// origin is something that a key reads, through the variable via where that is
// not "".
type origin struct {
	expr.Ref
	via string
}

// origins are what refs come to, where a variable counts as what it is made of.
// A variable without expressions comes to nothing.
func (c *checker) origins(refs []expr.Ref, layers []envLayer) []origin {
	var out []origin
	for _, r := range distinct(refs) {
		variable, ok := r.Of("env")
		if !ok {
			out = append(out, origin{Ref: r})
			continue
		}
		for _, read := range c.madeOf(variable, layers).refs {
			out = append(out, origin{Ref: read, via: variable})
		}
	}
	return out
}

// madeOf is what a variable is made of. What is wrong with it is said where it
// stands.
func (c *checker) madeOf(variable string, layers []envLayer) made {
	for i, l := range layers {
		text, ok := l.values[variable]
		if !ok {
			continue
		}
		if known, ok := l.made[variable]; ok {
			return known
		}
		refs, _ := c.expr.String(text, l.names)
		var read []expr.Ref
		sum := sha256.New()
		sum.Write([]byte(text))
		for _, r := range distinct(refs) {
			outer, ok := r.Of("env")
			if !ok {
				read = append(read, r)
				continue
			}
			m := c.madeOf(outer, layers[i+1:])
			read = append(read, m.refs...)
			sum.Write(m.sum[:])
		}
		out := made{refs: distinct(read)}
		sum.Sum(out.sum[:0])
		l.made[variable] = out
		return out
	}
	return made{}
}

// distinct are refs without those that read what one before them reads.
func distinct(refs []expr.Ref) []expr.Ref {
	seen := make(map[string]bool, len(refs))
	var out []expr.Ref
	for _, r := range refs {
		if path := strings.Join(r.Path, "\x00"); !seen[path] {
			seen[path] = true
			out = append(out, r)
		}
	}
	return out
}

// keyScope is what the key of a step with these variables may read: all that the
// step is given.
func (ctx stepContext) keyScope(own []entry[string]) *scope {
	outer := ctx.scopes.steps.names["env"]
	return ctx.scopes.steps.with(map[string]*expr.Name{"env": lazyGroup(lazy{
		noun: outer.Members.Noun(),
		member: func(name string) (*expr.Name, *expr.Error) {
			if slices.ContainsFunc(own, func(e entry[string]) bool { return e.key == name }) {
				return value(expr.KindText), nil
			}
			return outer.Members.Member(name)
		},
		names: func() []string {
			names := slices.Clone(outer.Members.Names())
			for _, e := range own {
				names = append(names, e.key)
			}
			slices.Sort(names)
			return slices.Compact(names)
		},
	})})
}

// earlyScope is what can be read before a run: by the key and the group of the
// pipeline. Why says what is wrong with reading the run itself.
func (c *checker) earlyScope(why string) *scope {
	out := &scope{
		names: map[string]*expr.Name{
			"inputs": c.baseScope.names["inputs"], "env": c.earlyEnv(),
			"tenant": value(expr.KindText), "project": value(expr.KindText),
		},
		absent: map[string]string{
			"run":    why,
			"stages": "no stage has run yet",
			"stage":  "it is outside of a stage",
			"steps":  "no step has run yet",
			"matrix": "it is outside of a stage",
		},
	}
	name := value(expr.KindText)
	out.names["pipeline"] = lazyGroup(lazy{
		noun: "name",
		member: func(member string) (*expr.Name, *expr.Error) {
			switch member {
			case "name":
				return name, nil
			case "status":
				return nil, &expr.Error{Message: "pipeline.status cannot be read here: the run has not begun"}
			}
			return nil, nil
		},
		names: func() []string { return []string{"name"} },
	})
	return out
}

// earlyEnv are the variables of the pipeline that do not read the run.
func (c *checker) earlyEnv() *expr.Name {
	layers := []envLayer{c.pipelineLayer}
	return lazyGroup(lazy{
		noun: c.pipelineEnv.Members.Noun(),
		member: func(variable string) (*expr.Name, *expr.Error) {
			for _, r := range c.madeOf(variable, layers).refs {
				if r.Path[0] == "run" || r.Kind == expr.KindStatus {
					return nil, &expr.Error{
						Message: "the variable " + variable + " cannot be read here: it reads " + expr.Written(r.Path...) + ", which is not known before the run",
						Hint:    "read inputs, or variables made of them",
					}
				}
			}
			return c.pipelineEnv.Members.Member(variable)
		},
		names: c.pipelineEnv.Members.Names,
	})
}
