package tree

import (
	"fmt"
	"slices"
	"strings"

	"belay.run/internal/run"
)

// maxLeaked bounds the names in a node's line; `resources` has them all.
const maxLeaked = 3

// leakedWords names what a node could not give back; "" where there is nothing.
func leakedWords(list []run.Resource) string {
	var names []string
	more := 0
	for i := range list {
		switch r := &list[i]; {
		case r.State != run.ResourceLeaked:
		case len(names) == maxLeaked:
			more++
		default:
			names = append(names, strings.TrimSpace(r.Kind+" "+r.Name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	s := "leaked " + strings.Join(names, ", ")
	if more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return Clean(s)
}

// resources are those of the node that it stands for.
func (it *item) resources() []run.Resource {
	switch {
	case it.step != nil:
		return it.step.Resources
	case it.stage != nil:
		return it.stage.Resources
	}
	return nil
}

// left reports whether something of the node, or of the steps of a stage, has
// leaked.
func (it *item) left() bool {
	if it.step != nil || leakedWords(it.stage.Resources) != "" {
		return leakedWords(it.resources()) != ""
	}
	return slices.ContainsFunc(it.stage.Steps, func(p run.Step) bool { return leakedWords(p.Resources) != "" })
}

// keepLeaked has a node that left something behind drawn as one that failed is,
// however well it ended.
func (it *item) keepLeaked() {
	if !it.left() {
		return
	}
	it.silent, it.rank = false, rankFailedStages
	if it.step != nil {
		it.rank = rankFailedSteps
	}
}
