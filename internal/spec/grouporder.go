package spec

import (
	"cmp"
	"maps"
	"slices"

	"belay.run/internal/expr"
	"belay.run/internal/resource"
)

// groupOrder finds groups and locks that a file takes one inside of the other, here
// in one order and there in the other: two runs that each have one of them wait for
// one another until a timeout.
type groupOrder struct {
	// inside are those that are waited for while one is held, and where that stands.
	inside map[waited][]nested
}

// waited is a group or a lock.
type waited struct{ kind, name string }

// String is how messages call it.
func (w waited) String() string { return w.kind + " " + quote(w.name) }

// nested is one that is taken while another is held.
type nested struct {
	waited

	at val[string]
}

// What can be waited for.
const (
	waitedGroup = "group"
	waitedLock  = "lock"
)

// groupsInOrder refuses a file whose groups and locks can wait for one another. Only
// names without expressions are looked at; those of other files are not known.
func (c *checker) groupsInOrder() {
	o := &groupOrder{inside: map[waited][]nested{}}
	held := o.take(nil, waitedGroup, c.raw.concurrency.v.group)
	for i := range c.raw.stages.v {
		s := &c.raw.stages.v[i].v
		of := o.takeAll(o.take(held, waitedGroup, s.concurrency.v.group), waitedLock, s.resources.v)
		for _, list := range [][]val[rawStep]{s.steps.v, s.rollback.v, s.finally.v} {
			o.steps(of, list)
		}
	}
	o.steps(held, c.raw.finally.v)
	byName := func(a, b waited) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name)) }
	for _, outer := range slices.SortedFunc(maps.Keys(o.inside), byName) {
		for _, in := range o.inside[outer] {
			// Once for each pair: at the name that stands further down.
			back, ok := o.leads(in.waited, outer, map[waited]bool{})
			if ok && back.node.Line <= in.at.node.Line {
				c.p.errorf(in.at.node, "take them in one order everywhere, or use one for both",
					"%s is waited for while %s is held, and line %d has it the other way round: two runs would wait for one another",
					in.waited, outer, back.node.Line)
			}
		}
	}
}

// take notes that one is taken while others are held, and returns what is held
// then. One that is held already is not waited for.
func (o *groupOrder) take(held []waited, kind string, name val[string]) []waited {
	if !name.given() || name.node == nil || expr.Has(name.v) {
		return held
	}
	w := waited{kind, name.v}
	if slices.Contains(held, w) {
		return held
	}
	for _, outer := range held {
		o.inside[outer] = append(o.inside[outer], nested{w, name})
	}
	return append(slices.Clip(held), w)
}

// takeAll notes the slots or the locks of a step or stage. It takes them sorted by
// name, so that they do not count among one another.
func (o *groupOrder) takeAll(held []waited, kind string, list []val[rawResource]) []waited {
	all := held
	of := map[string]string{resource.KindSlot: waitedGroup, resource.KindLock: waitedLock}
	for _, r := range list {
		if of[r.v.kind.v] == kind {
			all = append(slices.Clip(all), o.take(held, kind, r.v.name)[len(held):]...)
		}
	}
	return all
}

// steps notes the slots of steps, and the locks, which they take when they have
// those.
func (o *groupOrder) steps(held []waited, list []val[rawStep]) {
	for i := range list {
		o.steps(held, list[i].v.parallel.v)
		own := list[i].v.resources.v
		o.takeAll(o.takeAll(held, waitedGroup, own), waitedLock, own)
	}
}

// leads reports whether to is waited for, directly or not, while from is held, and
// where that begins.
func (o *groupOrder) leads(from, to waited, seen map[waited]bool) (val[string], bool) {
	if seen[from] {
		return val[string]{}, false
	}
	seen[from] = true
	for _, in := range o.inside[from] {
		if in.waited == to {
			return in.at, true
		}
		if _, ok := o.leads(in.waited, to, seen); ok {
			return in.at, true
		}
	}
	return val[string]{}, false
}
