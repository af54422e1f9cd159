package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A part is an object in the store that holds a log, or a piece of one: an
// attempt that is begun again, after its worker was lost, leaves the first part
// alone and writes the next. The store keys are
//
//	logs/<run key>/<node>/<attempt>          the first part
//	logs/<run key>/<node>/<attempt>.<part>   the others
type part struct {
	node     string
	attempt  int
	number   int
	size     int64
	modified time.Time
}

const keyPrefix = "logs/"

// RunPrefix is the store key of all logs of a run, for removing them.
func RunPrefix(runKey string) string { return keyPrefix + runKey }

// name is the part's place among those of its run.
func (p part) name() string {
	name := strconv.Itoa(p.attempt)
	if p.number > 1 {
		name += "." + strconv.Itoa(p.number)
	}
	if p.node == "" {
		return name
	}
	return p.node + "/" + name
}

func (p part) key(runKey string) string { return RunPrefix(runKey) + "/" + p.name() }

// parsePart undoes name. It refuses what is no log.
func parsePart(name string) (part, bool) {
	node, last := "", name
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		node, last = name[:i], name[i+1:]
	}
	attempt, number, more := strings.Cut(last, ".")
	p := part{node: node, number: 1}
	var err1, err2 error
	p.attempt, err1 = strconv.Atoi(attempt)
	if more {
		p.number, err2 = strconv.Atoi(number)
	}
	return p, err1 == nil && err2 == nil && p.attempt > 0 && p.name() == name
}

// selects reports whether f selects the log of a part.
func (f Filter) selects(p part) bool {
	if f.Attempt != 0 && f.Attempt != p.attempt {
		return false
	}
	rest, ok := strings.CutPrefix(p.node, f.Node)
	return ok && (f.Node == "" || rest == "" || rest[0] == '/' || rest[0] == '[')
}

func checkRunKey(runKey string) error {
	if runKey == "" || strings.Contains(runKey, "/") {
		return fmt.Errorf("logs: %q is no run key", runKey)
	}
	return nil
}

func (s Step) check() error {
	if s.Attempt < 1 {
		return errors.New("logs: attempts count from 1")
	}
	return checkRunKey(s.RunKey)
}

// parts lists the parts of a run that f selects, in order.
func (l *Logs) parts(ctx context.Context, runKey string, f Filter) ([]part, error) {
	if err := checkRunKey(runKey); err != nil {
		return nil, err
	}
	var parts []part
	for info, err := range l.store.List(ctx, RunPrefix(runKey)) {
		if err != nil {
			return nil, fmt.Errorf("listing logs: %w", err)
		}
		name, _ := strings.CutPrefix(info.Key, RunPrefix(runKey)+"/")
		p, ok := parsePart(name)
		if ok && f.selects(p) {
			p.size, p.modified = info.Size, info.Modified
			parts = append(parts, p)
		}
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.number, b.number))
	})
	return parts, nil
}

// The keys in Redis. All of one run carry the same hash tag, so that one
// command can wait for all of them.
//
//	belay:logs:{<run key>}:new            stream: name of each part that begins (n)
//	belay:logs:{<run key>}:tail:<part>    stream: offset (o) and frames (d)
const redisPrefix = "belay:logs:"

func newsKey(runKey string) string { return redisPrefix + "{" + runKey + "}:new" }

func tailPrefix(runKey string) string { return redisPrefix + "{" + runKey + "}:tail:" }

func tailKey(runKey string, p part) string { return tailPrefix(runKey) + p.name() }
