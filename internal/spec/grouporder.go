package spec

import (
	"maps"
	"slices"

	"belay.run/internal/expr"
	"belay.run/internal/resource"
)

// groupOrder finds groups that a file takes one inside of the other, here in one
// order and there in the other: two runs that each have one of them wait for one
// another until a timeout.
type groupOrder struct {
	// inside are the groups that are waited for while one is held, and where that
	// stands.
	inside map[string][]nested
}

// nested is a group that is taken while another is held.
type nested struct {
	group string
	at    val[string]
}

// groupsInOrder refuses a file whose groups can wait for one another. Only names
// without expressions are looked at; those of other files are not known.
func (c *checker) groupsInOrder() {
	o := &groupOrder{inside: map[string][]nested{}}
	held := o.take(nil, c.raw.concurrency.v.group)
	for i := range c.raw.stages.v {
		s := &c.raw.stages.v[i].v
		of := o.take(held, s.concurrency.v.group)
		for _, list := range [][]val[rawStep]{s.steps.v, s.rollback.v, s.finally.v} {
			o.steps(of, list)
		}
	}
	o.steps(held, c.raw.finally.v)
	for _, outer := range slices.Sorted(maps.Keys(o.inside)) {
		for _, in := range o.inside[outer] {
			// Once for each pair: at the name that stands further down.
			back, ok := o.leads(in.group, outer, map[string]bool{})
			if ok && back.node.Line <= in.at.node.Line {
				c.p.errorf(in.at.node, "take them in one order everywhere, or use one group for both",
					"group %s is waited for while %s is held, and line %d has it the other way round: two runs would wait for one another",
					quote(in.group), quote(outer), back.node.Line)
			}
		}
	}
}

// take notes that a group is taken while others are held, and returns what is held
// then. One that is held already is not waited for.
func (o *groupOrder) take(held []string, name val[string]) []string {
	if !name.given() || name.node == nil || expr.Has(name.v) {
		return held
	}
	if slices.Contains(held, name.v) {
		return held
	}
	for _, outer := range held {
		o.inside[outer] = append(o.inside[outer], nested{name.v, name})
	}
	return append(slices.Clip(held), name.v)
}

// steps notes the slots of steps. A step takes its own sorted by name, so that they
// do not count among one another.
func (o *groupOrder) steps(held []string, list []val[rawStep]) {
	for i := range list {
		o.steps(held, list[i].v.parallel.v)
		for _, r := range list[i].v.resources.v {
			if r.v.kind.v == resource.KindSlot {
				o.take(held, r.v.name)
			}
		}
	}
}

// leads reports whether to is waited for, directly or not, while from is held, and
// where that begins.
func (o *groupOrder) leads(from, to string, seen map[string]bool) (val[string], bool) {
	if seen[from] {
		return val[string]{}, false
	}
	seen[from] = true
	for _, in := range o.inside[from] {
		if in.group == to {
			return in.at, true
		}
		if _, ok := o.leads(in.group, to, seen); ok {
			return in.at, true
		}
	}
	return val[string]{}, false
}
