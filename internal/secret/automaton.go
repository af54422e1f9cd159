package secret

import (
	"slices"
)

// automaton finds all of many patterns in one pass over a text, after Aho and
// Corasick: its state is the longest end of the text so far that is the start
// of a pattern. It is read-only once built.
//
// Ordinary text seldom holds even the first four bytes of a pattern, so a
// filter of those lets most of it pass without a look at the states.
type automaton struct {
	states []state
	roots  [256]int32
	filter [1 << (filterBits - 6)]uint64
}

// state is a node in the tree of patterns; number 0 is the root.
type state struct {
	child, sibling int32
	// fail is the state of the longest proper end of this one.
	fail int32
	// label is the byte that leads here, depth how many have.
	label, depth byte
	// match is the length of the longest pattern that ends here, or 0.
	match byte
}

const (
	// minPattern is the shortest pattern, and what the filter looks at.
	minPattern = 4
	// maxPattern fits the depth of a state.
	maxPattern = 127
	filterBits = 17
)

// newAutomaton takes patterns of minPattern to maxPattern bytes.
func newAutomaton(patterns []string) *automaton {
	slices.Sort(patterns)
	patterns = slices.Compact(patterns)
	a := &automaton{states: make([]state, 1)}
	for _, p := range patterns {
		a.insert(p)
		h := hash(uint32(p[0])<<24 | uint32(p[1])<<16 | uint32(p[2])<<8 | uint32(p[3]))
		a.filter[h>>6] |= 1 << (h & 63)
	}
	a.link()
	return a
}

func hash(window uint32) uint32 { return window * 0x9E3779B1 >> (32 - filterBits) }

// insert adds a pattern. They come sorted, so a shared start is always along
// the children that were added last, which are the first in their lists.
func (a *automaton) insert(p string) {
	at := int32(0)
	for i := range len(p) {
		next := a.states[at].child
		if next == 0 || a.states[next].label != p[i] {
			n := int32(len(a.states))
			a.states = append(a.states, state{sibling: next, label: p[i], depth: byte(i + 1)})
			a.states[at].child = n
			next = n
		}
		at = next
	}
	a.states[at].match = byte(len(p))
}

// link sets fail and match of all states, the nearest to the root first.
func (a *automaton) link() {
	queue := make([]int32, 0, len(a.states))
	for s := a.states[0].child; s != 0; s = a.states[s].sibling {
		a.roots[a.states[s].label] = s
		queue = append(queue, s)
	}
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		for s := a.states[at].child; s != 0; s = a.states[s].sibling {
			to := &a.states[s]
			to.fail = a.next(a.states[at].fail, to.label)
			to.match = max(to.match, a.states[to.fail].match)
			queue = append(queue, s)
		}
	}
}

// next is the state after byte c in state at.
func (a *automaton) next(at int32, c byte) int32 {
	for at != 0 {
		for s := a.states[at].child; s != 0; s = a.states[s].sibling {
			if a.states[s].label == c {
				return s
			}
		}
		at = a.states[at].fail
	}
	return a.roots[c]
}

// skip is how many bytes at the start of p lie before the first place where a
// pattern may start. The last three bytes are never skipped.
func (a *automaton) skip(p []byte) int {
	if len(p) < minPattern {
		return 0
	}
	window := uint32(p[0])<<16 | uint32(p[1])<<8 | uint32(p[2])
	for i := minPattern - 1; i < len(p); i++ {
		window = window<<8 | uint32(p[i])
		h := hash(window)
		if a.filter[h>>6]>>(h&63)&1 != 0 {
			return i - (minPattern - 1)
		}
	}
	return len(p) - (minPattern - 1)
}
