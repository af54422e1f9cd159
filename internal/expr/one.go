package expr

import (
	"reflect"
	"strings"
)

// One checks a template that is one expression and nothing else, and returns
// what it reads and the kind of its value; KindText where only a run can tell.
func (c *Checker) One(template string, names Members) ([]Ref, Kind, []*Error) {
	trimmed := strings.TrimSpace(template)
	parts, err := split(trimmed)
	if err != nil {
		return nil, KindText, errorsOf(err)
	}
	if len(parts) != 1 || !parts[0].code {
		return nil, KindText, []*Error{{
			Message: "found text beside a ${{ }}", Hint: "write one expression, without anything before or after it",
		}}
	}
	p := parts[0]
	p.offset += strings.Index(template, trimmed)
	refs, t, errs := c.check(p, names)
	if len(errs) > 0 || t == nil {
		return refs, KindText, errs
	}
	if !scalar(t) {
		errs = []*Error{{Offset: p.begin(), Message: "`" + p.brief() + "` is " + typeName(t) + ", which has no text form"}}
	}
	return refs, kindOf(t), errs
}

func kindOf(t reflect.Type) Kind {
	switch t.Kind() { //nolint:exhaustive // the rest reads as text
	case reflect.Int:
		return KindInt
	case reflect.Float64:
		return KindNumber
	case reflect.Bool:
		return KindBool
	}
	return KindText
}
