package spec

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Labels of a built-in step that have a meaning: what it is expected to take.
// The router goes by them; others are free.
const (
	LabelDuration = "duration"
	LabelMemory   = "memory"
)

// ExpectedDuration is what the step's labels say that it takes; 0: nothing.
func (s *Step) ExpectedDuration() time.Duration {
	d, hint := parseDuration(s.Labels[LabelDuration])
	if hint != "" {
		return 0
	}
	return d
}

// ExpectedMemory is how many bytes the step's labels say that it holds; 0:
// nothing.
func (s *Step) ExpectedMemory() int64 {
	n, ok := ParseSize(s.Labels[LabelMemory])
	if !ok {
		return 0
	}
	return n
}

// ParseSize reads a number of bytes such as 64KiB or 10MB.
func ParseSize(s string) (int64, bool) {
	if !sizeRE.MatchString(s) {
		return 0, false
	}
	digits := strings.TrimRight(s, " BKMGi")
	count, err := strconv.ParseInt(digits, 10, 64)
	unit := unitOf(strings.TrimSpace(s[len(digits):]))
	if err != nil || count > maxSize/unit {
		return 0, false
	}
	return count * unit, true
}

// labels tell the router about a step. Two have a form of their own.
func labels() kind[[]entry[string]] {
	free := mapOf(nodeNames("a label"), literal(), "labels")
	span, bytes := duration(time.Millisecond), size(1)
	return kind[[]entry[string]]{
		read: func(p *parser, n *yaml.Node) ([]entry[string], bool) {
			list, ok := free.read(p, n)
			for _, e := range list {
				good := true
				switch e.key {
				case LabelDuration:
					_, good = span.read(p, e.val.node)
				case LabelMemory:
					_, good = bytes.read(p, e.val.node)
				default:
					if hasExpr(e.val.v) {
						p.errorf(e.val.node, "write it out: where a step runs is decided before the run begins", "expressions are not possible in labels")
						good = false
					}
				}
				ok = ok && good
			}
			return list, ok
		},
		schema: func(defs schemas) schema {
			s := free.schema(defs)
			s["properties"] = schema{LabelDuration: span.schema(defs), LabelMemory: bytes.schema(defs)}
			return s
		},
	}
}
