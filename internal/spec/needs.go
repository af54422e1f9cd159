package spec

import (
	"maps"
	"slices"
	"strings"

	"belay.run/internal/expr"
)

// needs checks what the stages need: known stages, no cycle.
func (c *checker) needs() {
	names := slices.Sorted(maps.Keys(c.stages))
	for _, s := range c.raw.stages.v {
		seen := map[string]bool{}
		for _, need := range s.v.needs.v {
			switch {
			case need.v == s.v.name.v:
				c.p.errorf(need.node, "remove it", "the stage %s needs itself", need.v)
			case c.stages[need.v] == nil:
				hint := ""
				if near := expr.Nearest(need.v, names); near != "" {
					hint = "did you mean " + near + "?"
				}
				c.p.errorf(need.node, hint, "%s needs %s, which is no stage of this pipeline", called(&s.v), quote(need.v))
			case seen[need.v]:
				c.p.errorf(need.node, "remove one of the two", "%s stands twice in needs", need.v)
			}
			seen[need.v] = true
		}
	}
	c.cycles()
}

// called is a stage as errors call it; one whose name is no name has none.
func called(s *rawStage) string {
	if s.name.v == "" {
		return "the stage"
	}
	return "the stage " + s.name.v
}

// cycles reports each stage at which a way through the needs leads back to a
// stage on the way.
func (c *checker) cycles() {
	const unseen, onWay, done = 0, 1, 2
	state := map[*rawStage]int{}
	var way []string
	var visit func(s *rawStage)
	visit = func(s *rawStage) {
		state[s] = onWay
		way = append(way, s.name.v)
		for _, need := range s.needs.v {
			next := c.stages[need.v]
			if next == nil || next == s {
				continue
			}
			switch state[next] {
			case unseen:
				visit(next)
			case onWay:
				from := slices.Index(way, need.v)
				cycle := slices.Concat(way[from:], []string{need.v})
				c.p.errorf(need.node, "remove one of these needs", "the stages need each other in a circle: %s", arrows(cycle))
			}
		}
		way = way[:len(way)-1]
		state[s] = done
	}
	for i := range c.raw.stages.v {
		if s := &c.raw.stages.v[i].v; state[s] == unseen {
			visit(s)
		}
	}
}

func arrows(names []string) string {
	const shown = 12
	if len(names) > shown {
		names = slices.Concat(names[:shown-2], []string{"…"}, names[len(names)-1:])
	}
	return strings.Join(names, " → ")
}
