package spec

import (
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
)

// template checks the expressions in a text.
func (c *checker) template(v val[string], names *scope) {
	if v.given() {
		c.templateAt(v.node, v.v, names)
	}
}

func (c *checker) templateAt(n *yaml.Node, s string, names *scope) {
	refs, errs := c.expr.String(s, names)
	c.reportExpr(n, errs)
	c.noteReads(refs)
}

// noteReads remembers which stages are read, so that a stage is handed no more
// of the others than that. One that is named by an expression may be any.
func (c *checker) noteReads(refs []expr.Ref) {
	for _, r := range refs {
		switch {
		case r.Path[0] != "stages":
		case len(r.Path) > 1:
			c.reads[r.Path[1]] = true
		default:
			for name := range c.stages {
				c.reads[name] = true
			}
		}
	}
}

func (c *checker) reportExpr(n *yaml.Node, errs []*expr.Error) {
	for _, e := range errs {
		hint := e.Hint
		if n.Style == 0 && strings.Contains(c.p.line(n.Line), " #") && hint == "" {
			hint = "quote it: YAML takes a # after a space for a comment"
		}
		c.p.add(c.p.within(n, e.Offset), hint, e.Message)
	}
}

// templates checks the values of variables.
func (c *checker) templates(entries []entry[string], names *scope) {
	for _, e := range entries {
		c.template(e.val, names)
	}
}

// condition checks a `when` and freezes it.
func (c *checker) condition(w val[string], names *scope) *Condition {
	if !w.given() {
		return nil
	}
	refs, errs := c.expr.Bool(w.v, names)
	c.reportExpr(w.node, errs)
	c.noteReads(refs)
	out := &Condition{Expr: w.v}
	for _, r := range refs {
		// An exit code says how a step went as much as its status does.
		if r.Kind == expr.KindStatus || r.Path[len(r.Path)-1] == "exit_code" && r.Path[0] != "inputs" {
			out.ReadsStatus = true
		}
	}
	return out
}

// stageScopes are what the expressions of a stage may read: its own when, its
// runs_on and env, and its steps.
type stageScopes struct {
	when, env, steps *scope
	before           *stepNames
}

// scopes makes the scopes of a stage. A nil stage stands for the finally steps
// of the pipeline.
func (c *checker) scopes(s *rawStage) stageScopes {
	self, visible, env := "", map[string]bool(nil), c.pipelineEnv
	if s != nil {
		self, visible = s.name.v, c.before(s)
		if s.env.given() {
			env = envGroup(c.raw.env.v, s.env.v)
		}
	}
	when := c.baseScope.with(map[string]*expr.Name{"env": c.pipelineEnv, "stages": c.stageNames(self, visible)})
	when.absent = map[string]string{
		"stage":  "it is read by steps only",
		"steps":  "the stage has not begun",
		"matrix": "this is read once, before the legs of the matrix are made",
	}
	out := stageScopes{when: when, env: when, before: &stepNames{before: map[string]*expr.Name{}, all: map[string]int{}}}
	if s != nil {
		if s.matrix.given() {
			out.env = when.with(map[string]*expr.Name{"matrix": c.matrixNames(s.matrix.v)})
		}
		out.before.add(s.steps.v)
		out.before.add(s.rollback.v)
		out.before.add(s.finally.v)
	}
	out.steps = out.env.with(map[string]*expr.Name{
		"env":   env,
		"stage": group("name", map[string]*expr.Name{"name": value(expr.KindText), "status": value(expr.KindStatus)}),
		"steps": out.before.group(),
	})
	out.steps.absent = map[string]string{"matrix": "the stage has no matrix"}
	return out
}

// before are the stages that a stage needs, and what these need in turn. It is
// nil, which stands for all, where a need is misspelt.
func (c *checker) before(s *rawStage) map[string]bool {
	if slices.ContainsFunc(s.needs.v, func(need val[string]) bool { return c.stages[need.v] == nil }) {
		return nil
	}
	seen := map[string]bool{}
	var visit func(s *rawStage)
	visit = func(s *rawStage) {
		for _, need := range s.needs.v {
			if next := c.stages[need.v]; next != nil && !seen[need.v] {
				seen[need.v] = true
				visit(next)
			}
		}
	}
	visit(s)
	delete(seen, s.name.v)
	return seen
}

// sourceScope is what the source may read: it is fetched before anything runs.
func (c *checker) sourceScope() *scope {
	out := &scope{names: map[string]*expr.Name{"inputs": c.baseScope.names["inputs"]}, absent: map[string]string{}}
	for name := range maps.Keys(c.baseScope.names) {
		out.absent[name] = "a source reads inputs only"
	}
	for _, name := range []string{"env", "stages", "stage", "steps", "matrix"} {
		out.absent[name] = "a source reads inputs only"
	}
	return out
}
