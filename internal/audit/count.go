package audit

import (
	"strings"
	"time"
)

const (
	// countsKept is how long the counts of an hour are kept.
	countsKept = 32 * 24 * time.Hour
	// daysKept is how long the counts of a day are kept: a year, and what one may
	// be late with its report.
	daysKept = 400 * 24 * time.Hour
	// maxFields bounds the counts of one tenant and hour, or day.
	maxFields = 4000
	// otherName is what pipelines are counted under beyond that.
	otherName = "(other)"
)

// count is what a field of the counts stands for.
type count struct {
	project, pipeline string
	// what is "granted", or the decision of an entry.
	what string
	// cause is an entry's.
	cause string
}

const granted = "granted"

func entryCount(e *Entry) count {
	return count{e.Project, e.Pipeline, string(e.Decision), string(e.RootCause)}
}

// other is the same for a pipeline that there is no room for.
func (c count) other() count {
	c.project, c.pipeline = otherName, otherName
	return c
}

const separator = "\x1f"

func (c count) field() string {
	return strings.Join([]string{c.project, c.pipeline, c.what, c.cause}, separator)
}

func parseCount(field string) (c count, ok bool) {
	parts := strings.Split(field, separator)
	if len(parts) != 4 {
		return count{}, false
	}
	return count{parts[0], parts[1], parts[2], parts[3]}, true
}
