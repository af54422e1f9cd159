package spec

import (
	"slices"

	"belay.run/internal/expr"
	"belay.run/internal/resource"
)

// stageResourceKinds are the kinds of resources that a stage can hold over all its
// steps. Its slot is its concurrency.
func stageResourceKinds() []resourceKind {
	kinds := resourceKinds()
	for i := range kinds {
		switch o := kinds[i].object; kinds[i].name {
		case resource.KindSlot:
			kinds[i] = resourceKind{name: resource.KindSlot, hint: "a stage takes a slot by concurrency: {group: …, limit: …}"}
		case resource.KindCustom:
			o.name, o.def, o.never = "a custom resource of a stage", "customStageResource", nil
			o.fields = append(o.fields,
				key("secrets", listOf(named(envNames("a secret")), "secrets"), func(r *rawResource) *val[[]val[string]] { return &r.secrets }))
		}
	}
	return kinds
}

// stageResources checks what a stage holds, also beside what its steps do, and
// freezes it.
func (c *checker) stageResources(raw *rawStage, names *scope) []Resource {
	out := c.held("stage", raw.resources, names)
	held := map[string]*rawResource{}
	for i := range raw.resources.v {
		r := &raw.resources.v[i].v
		c.useSecrets(r.secrets.v...)
		for _, env := range [][]entry[string]{c.raw.env.v, raw.env.v} {
			c.besideSecrets("resource", env, r.secrets.v)
			if r.kind.v == resource.KindCredential && r.name.given() {
				c.ownVariable("of its stage or pipeline", r.name, env, nil)
			}
		}
		if r.name.given() && held[r.as()] == nil {
			held[r.as()] = r
		}
	}
	if len(held) > 0 {
		for _, list := range [][]val[rawStep]{raw.steps.v, raw.rollback.v, raw.finally.v} {
			c.besideStage(held, list)
		}
	}
	return out
}

// besideStage refuses what steps hold that their stage holds already: they would
// wait for it for ever, or could not tell the two apart.
func (c *checker) besideStage(held map[string]*rawResource, list []val[rawStep]) {
	for i := range list {
		step := &list[i].v
		c.besideStage(held, step.parallel.v)
		for j := range step.resources.v {
			r := &step.resources.v[j].v
			if !r.name.given() {
				continue
			}
			if other := held[r.as()]; other != nil && !expr.Has(r.name.v) && !expr.Has(other.name.v) {
				c.p.errorf(r.name.node, "remove it from the step, or rename one of the two",
					"the stage holds the %s %s over all its steps, in line %d", other.kind.v, other.name.v, other.name.node.Line)
			}
		}
		for _, name := range slices.Concat(variables(step.env.v), step.secrets.v) {
			as := resource.KindCredential + " " + resource.EnvName(name.v)
			if other := held[as]; other != nil && other.name.v == name.v {
				c.p.errorf(name.node, "rename one of the two", "%s is the name of a credential that the stage holds", name.v)
			}
		}
	}
}

// variables are the names in an env, each with its place.
func variables(env []entry[string]) []val[string] {
	out := make([]val[string], len(env))
	for i, e := range env {
		out[i] = val[string]{v: e.key, node: e.at}
	}
	return out
}
