package spec

import (
	"slices"

	"belay.run/internal/expr"
)

// envLayer is an env, and what its expressions may read. An inner one hides the
// variables of an outer one.
type envLayer struct {
	entries []entry[string]
	names   *scope
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
	for _, r := range refs {
		if r.Path[0] != "env" || len(r.Path) < 2 {
			out = append(out, origin{Ref: r})
			continue
		}
		for _, made := range c.madeOf(r.Path[1], layers) {
			out = append(out, origin{Ref: made, via: r.Path[1]})
		}
	}
	return out
}

// madeOf is what the value of a variable reads. What is wrong with it is said
// where it stands.
func (c *checker) madeOf(variable string, layers []envLayer) []expr.Ref {
	for i, l := range layers {
		at := slices.IndexFunc(l.entries, func(e entry[string]) bool { return e.key == variable })
		if at < 0 {
			continue
		}
		refs, _ := c.expr.String(l.entries[at].val.v, l.names)
		var out []expr.Ref
		for _, r := range refs {
			if r.Path[0] == "env" && len(r.Path) > 1 {
				out = append(out, c.madeOf(r.Path[1], layers[i+1:])...)
			} else {
				out = append(out, r)
			}
		}
		return out
	}
	return nil
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
	layers := []envLayer{{c.raw.env.v, c.baseScope}}
	return lazyGroup(lazy{
		noun: c.pipelineEnv.Members.Noun(),
		member: func(variable string) (*expr.Name, *expr.Error) {
			for _, r := range c.madeOf(variable, layers) {
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
