package types

import (
	"maps"
	"slices"

	"belay.run/internal/task"
)

// onlyOf refuses parameters that belong to other kinds of a type than the one
// that was chosen, and misses those without which that one cannot be.
func onlyOf(a *task.Args, kind string, all map[string][]string) {
	own, ok := all[kind]
	if !ok {
		return // the kind itself is wrong, which is noted
	}
	for _, other := range slices.Sorted(maps.Keys(all)) {
		for _, name := range all[other] {
			if a.Has(name) && !slices.Contains(own, name) {
				a.Wrong(name, "it means nothing to %s", kind)
			}
		}
	}
}
