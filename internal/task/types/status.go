package types

import (
	"strconv"
	"strings"

	"belay.run/internal/task"
)

// statusParam is which statuses of HTTP are well.
func statusParam() task.Param {
	return task.Param{
		Name: "status", Kind: task.Texts,
		Doc: "The statuses that are well: one or a list of such as `200`, `2xx` and `200-299`; `2xx` by default.",
	}
}

// statuses are ranges of statuses of HTTP.
type statuses []statusRange

type statusRange struct {
	low, high int
	text      string
}

func readStatuses(a *task.Args) statuses {
	texts := a.Texts("status", "2xx")
	if len(texts) == 0 {
		a.Wrong("status", "the list is empty: nothing would be well")
	}
	all := make(statuses, 0, len(texts))
	for _, text := range texts {
		r, ok := readStatusRange(text)
		if !ok {
			a.Wrong("status", "found %.32q, expected such as 200, 2xx or 200-299", text)
		}
		all = append(all, r)
	}
	return all
}

func readStatusRange(text string) (statusRange, bool) {
	low, high, isRange := strings.Cut(text, "-")
	switch {
	case len(text) == 3 && strings.EqualFold(text[1:], "xx"):
		low, high = text[:1]+"00", text[:1]+"99"
	case !isRange:
		high = low
	}
	r := statusRange{text: text}
	var errLow, errHigh error
	r.low, errLow = strconv.Atoi(low)
	r.high, errHigh = strconv.Atoi(high)
	return r, errLow == nil && errHigh == nil && r.low >= 100 && r.low <= r.high && r.high <= 599
}

func (s statuses) has(status int) bool {
	for _, r := range s {
		if r.low <= status && status <= r.high {
			return true
		}
	}
	return false
}

func (s statuses) String() string {
	texts := make([]string, len(s))
	for i, r := range s {
		texts[i] = r.text
	}
	return strings.Join(texts, " or ")
}
