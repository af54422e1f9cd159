package spec

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"belay.run/internal/expr"
)

// sourceOf checks the source. Its texts may read inputs.
func (c *checker) sourceOf(raw rawSource) *Source {
	for _, e := range raw.exclude.v {
		if _, err := path.Match(e.v, ""); err != nil {
			c.p.errorf(e.node, "close the [", "%s is no pattern", quote(e.v))
		}
	}
	for _, v := range []val[string]{raw.path, raw.git, raw.ref} {
		if strings.ContainsAny(v.v, "\n\r") {
			c.p.errorf(v.node, "", "expected one line, found several")
		} else if strings.HasPrefix(v.v, "-") {
			c.p.errorf(v.node, "", "%s begins with a -, and would be read as an option", quote(v.v))
		}
	}
	names := c.sourceScope()
	c.template(raw.path, names)
	c.template(raw.git, names)
	c.template(raw.ref, names)
	return &Source{Path: raw.path.v, Exclude: values(raw.exclude.v), Git: raw.git.v, Ref: raw.ref.v}
}

// source is the source of a run with these inputs.
func (f *File) source(inputs map[string]any) (*Source, error) {
	if f.plan.Source == nil {
		return nil, nil
	}
	out := *f.plan.Source
	scope := expr.Scope{"inputs": inputs}
	for _, t := range []struct {
		name string
		text *string
	}{{"path", &out.Path}, {"git", &out.Git}, {"ref", &out.Ref}} {
		s, err := expr.String(*t.text, scope)
		var e *expr.Error
		switch {
		case errors.As(err, &e):
			return nil, f.invalid(Problem{Message: fmt.Sprintf("source.%s: %s", t.name, e.Message), Hint: e.Hint})
		case err != nil:
			return nil, fmt.Errorf("source.%s: %w", t.name, err)
		case *t.text != s && (strings.HasPrefix(s, "-") || strings.ContainsAny(s, "\n\r") || s == ""):
			return nil, f.invalid(Problem{Message: fmt.Sprintf("source.%s: %s cannot be used", t.name, quote(s))})
		}
		*t.text = s
	}
	return &out, nil
}
