package tree

import (
	"sort"

	"belay.run/internal/run"
)

// item is a line that may be drawn, with what belongs under it. It stands for a
// stage, a step, a group of steps or a line of text.
type item struct {
	stage *run.Stage
	step  *run.Step
	group string
	text  string
	log   bool

	status   run.Status
	colour   colour
	rank     rank
	silent   bool // left out without being counted in a line of its own
	dropped  bool
	children []*item
}

// rank orders what is given up for want of room, the least missed first.
type rank int

const (
	rankNever rank = iota
	rankDoneStageSteps
	rankDoneSteps
	rankPendingSteps
	rankOldLogs
	rankDoneStages
	rankPendingStages
	rankCancelledSteps
	rankLogs
	rankCancelledStages
	rankFailedLogs
	rankRunningSteps
	rankNotes
	rankRunningStages
	rankFailedSteps
	rankFailedStages
	ranks
)

func stageRank(s run.Status) rank {
	switch s {
	case run.Succeeded, run.Skipped, run.Duplicate:
		return rankDoneStages
	case run.Pending:
		return rankPendingStages
	case run.Cancelled:
		return rankCancelledStages
	case run.Running, run.Cancelling:
		return rankRunningStages
	case run.Failed, run.TimedOut:
		return rankFailedStages
	}
	return rankFailedStages
}

func stepRank(s run.Status) rank {
	switch s {
	case run.Succeeded, run.Skipped, run.Duplicate:
		return rankDoneSteps
	case run.Pending:
		return rankPendingSteps
	case run.Cancelled:
		return rankCancelledSteps
	case run.Running, run.Cancelling:
		return rankRunningSteps
	case run.Failed, run.TimedOut:
		return rankFailedSteps
	}
	return rankFailedSteps
}

// node reports whether it stands for a stage or a step.
func (it *item) node() bool { return it.step != nil || it.stage != nil }

// fold drops items until what is under root takes at most height lines.
func fold(root *item, height int) {
	if root.height() <= height {
		return
	}
	byRank := make([][]*item, ranks)
	root.collect(byRank)
	for r := rankDoneStageSteps; r < ranks; r++ {
		items := byRank[r]
		if r == rankPendingSteps || r == rankPendingStages {
			// Of what has not begun, what comes last is missed least.
			for i, j := 0, len(items)-1; i < j; i, j = i+1, j-1 {
				items[i], items[j] = items[j], items[i]
			}
		}
		drop(items, len(items))
		if root.height() > height {
			continue
		}
		drop(items, sort.Search(len(items), func(n int) bool {
			drop(items, n)
			return root.height() <= height
		}))
		return
	}
}

// drop leaves out the first n of items and no other.
func drop(items []*item, n int) {
	for i, it := range items {
		it.dropped = i < n
	}
}

func (it *item) collect(byRank [][]*item) {
	for _, c := range it.children {
		if c.rank != rankNever {
			byRank[c.rank] = append(byRank[c.rank], c)
		}
		c.collect(byRank)
	}
}

// height is how many lines the children of it take.
func (it *item) height() int {
	n := 0
	it.visit(func(child *item) {
		n += 1 + child.height()
	}, func(map[run.Status]int) {
		n++
	})
	return n
}

// visit calls shown for each child that is drawn, and more in place of those
// next to each other that are not, with how many there are in each state.
func (it *item) visit(shown func(*item), more func(map[run.Status]int)) {
	var left map[run.Status]int
	flush := func() {
		if len(left) > 0 {
			more(left)
		}
		left = nil
	}
	for _, c := range it.children {
		switch {
		case !c.visible():
			if c.node() && !c.silent {
				if left == nil {
					left = map[run.Status]int{}
				}
				left[c.status]++
			}
		default:
			flush()
			shown(c)
		}
	}
	flush()
}

// visible reports whether it is drawn: not dropped, and where it is a group, if
// anything is drawn under it.
func (it *item) visible() bool {
	if it.dropped {
		return false
	}
	return it.group == "" || it.height() > 0
}
