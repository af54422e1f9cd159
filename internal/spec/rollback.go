package spec

import (
	"slices"

	"go.yaml.in/yaml/v3"
)

// rollback checks the rollback steps of a stage, and that there are some
// exactly where an on_failure of the stage or of its steps asks for them.
func (c *checker) rollback(raw *rawStage, ctx stepContext) []Step {
	asks := raw.onFailure.v.rollsBack()
	refused := false
	for _, s := range raw.steps.v {
		for _, st := range append([]val[rawStep]{s}, s.v.parallel.v...) {
			if !st.v.onFailure.v.rollsBack() {
				continue
			}
			asks = true
			if !raw.rollback.given() && !refused {
				refused = true
				c.noRollback(st.v.onFailure.node, raw.name.v)
			}
		}
	}
	switch {
	case raw.onFailure.v.rollsBack() && !raw.rollback.given():
		c.noRollback(raw.onFailure.node, raw.name.v)
	case raw.rollback.given() && !asks:
		c.p.warnf(raw.rollback.node, "set on_failure: rollback on the stage, or on a step",
			"no on_failure of the stage %s asks for its rollback", raw.name.v)
	}
	return c.steps(raw.rollback.v, ctx)
}

func (c *checker) noRollback(at *yaml.Node, stage string) {
	c.p.errorf(at, "add rollback: with the steps that undo", "on_failure: rollback, and the stage %s has no rollback", stage)
}

// noRollbackIn refuses on_failure: rollback among steps after which nothing is
// rolled back.
func (c *checker) noRollbackIn(list []val[rawStep], where string) {
	for _, s := range list {
		if s.v.onFailure.v.rollsBack() {
			c.p.errorf(s.v.onFailure.node, "use abort, continue or ignore", "on_failure: rollback is not possible in %s", where)
		}
		c.noRollbackIn(s.v.parallel.v, where)
	}
}

// rollsBack reports whether any failure is to be rolled back.
func (o OnFailure) rollsBack() bool {
	return slices.Contains([]Action{o.Timeout, o.Error, o.Lost, o.Default}, Rollback)
}
