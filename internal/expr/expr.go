// Package expr reads, checks and evaluates the expressions of pipeline files:
// ${{ … }} inside of strings, and bare in conditions.
//
// Expressions are evaluated inside of workflows, and again on every replay. So
// they read nothing but their Scope, the same expression over the same Scope
// gives the same result or the same error for ever, and each is bounded in
// length, steps and memory. Grammar, types and arithmetic are those of
// github.com/expr-lang/expr. The evaluation is not: that library's machine
// counts neither the steps nor the text that an expression makes, so that one
// of a hundred characters can run for days.
package expr

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

// Bounds of an expression and of its evaluation.
const (
	// MaxLength is how long an expression may be, in bytes.
	MaxLength = 4096
	// MaxNodes is how many names, values and operators it may hold.
	MaxNodes = 500
	// MaxText is how long a text may become, in bytes, at the end and in between.
	MaxText = 128 << 10
	// MaxExpressions is how many expressions one text may hold.
	MaxExpressions = 100
	// MaxItems is how many items a list may have.
	MaxItems = 10_000
	// maxCost bounds the steps of an evaluation, where work on a text counts
	// by its length. It is some tens of milliseconds at most.
	maxCost = 250_000
)

// Scope holds the values that an expression may read, by name: text, numbers
// and booleans in nested map[string]any. A name whose value is absent is null.
type Scope map[string]any

// Error is what is wrong with an expression or with its evaluation.
type Error struct {
	// Offset is where in the string it stands, in bytes from its beginning.
	Offset int
	// Message says what was found and what was expected, Hint what to do.
	Message string
	Hint    string
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// String replaces each ${{ … }} in template by the text of its value. $${{
// stands for a ${{ that is meant literally. A value that is null is an error.
func String(template string, s Scope) (string, error) {
	parts, err := split(template)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, p := range parts {
		text := p.text
		if p.code {
			if text, err = interpolate(p, s); err != nil {
				return "", err
			}
		}
		if out.Len()+len(text) > MaxText {
			return "", &Error{Offset: p.offset, Message: fmt.Sprintf("the text becomes longer than %d bytes", MaxText)}
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

// Bool evaluates a condition. It may stand inside of one ${{ … }}.
func Bool(cond string, s Scope) (bool, error) {
	p, err := bare(cond)
	if err != nil {
		return false, err
	}
	v, err := evaluate(p, s)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	if !ok {
		return false, &Error{Offset: p.begin(), Message: fmt.Sprintf("the condition `%s` is %s, not true or false", p.brief(), describe(v))}
	}
	return b, nil
}

func interpolate(p part, s Scope) (string, error) {
	v, err := evaluate(p, s)
	if err != nil {
		return "", err
	}
	t, ok := text(v)
	switch {
	case v == nil:
		return "", &Error{
			Offset:  p.begin(),
			Message: fmt.Sprintf("`%s` has no value", p.brief()),
			Hint:    "give a default: ${{ " + p.brief() + ` ?? "none" }}`,
		}
	case !ok:
		return "", &Error{
			Offset:  p.begin(),
			Message: fmt.Sprintf("`%s` is %s, which has no text form", p.brief(), describe(v)),
			Hint:    "make one text of a list with join",
		}
	case !utf8.ValidString(t):
		return "", &Error{Offset: p.begin(), Message: fmt.Sprintf("`%s` is not valid UTF-8", p.brief())}
	}
	return t, nil
}

func evaluate(p part, s Scope) (any, error) {
	tree, err := parse(p, grammar())
	if err != nil {
		return nil, err
	}
	e := evaluator{part: p, scope: s}
	return e.run(tree)
}

// run is the one border at which a panic of the library's operators becomes an
// error: they report a wrong type by a panic.
func (e *evaluator) run(n ast.Node) (v any, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, err = nil, &Error{Offset: e.part.at(e.last), Message: strings.TrimPrefix(fmt.Sprint(r), "runtime error: ")}
		}
	}()
	return e.eval(n)
}
