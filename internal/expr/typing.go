package expr

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"

	"belay.run/internal/run"
)

// zero is a value of a kind.
func zero(k Kind) any {
	switch k {
	case KindInt:
		return 0
	case KindNumber:
		return 0.0
	case KindBool:
		return false
	case KindText, KindStatus, KindGroup:
		return ""
	}
	return ""
}

func typeOf(k Kind) reflect.Type { return reflect.TypeOf(zero(k)) }

// scalar reports whether values of a type may have a text form.
func scalar(t reflect.Type) bool {
	switch t.Kind() { //nolint:exhaustive // the rest has none
	case reflect.String, reflect.Int, reflect.Float64, reflect.Bool, reflect.Interface:
		return true
	}
	return false
}

func typeName(t reflect.Type) string {
	switch t.Kind() { //nolint:exhaustive // the rest does not occur
	case reflect.String:
		return "text"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	}
	return t.String()
}

// compared checks what a status is compared with.
func (r *resolver) compared(b *ast.BinaryNode) {
	switch b.Operator {
	case "==", "!=":
		r.statusText(b.Left, b.Right)
		r.statusText(b.Right, b.Left)
	case "in":
		if items, ok := b.Right.(*ast.ArrayNode); ok {
			for _, item := range items.Nodes {
				r.statusText(b.Left, item)
			}
		}
	}
}

func (r *resolver) statusText(status, other ast.Node) {
	name := r.made[status]
	s, ok := other.(*ast.StringNode)
	if name == nil || name.Kind != KindStatus || !ok || slices.Contains(run.Statuses(), run.Status(s.Value)) {
		return
	}
	names := make([]string, len(run.Statuses()))
	for i, st := range run.Statuses() {
		names[i] = string(st)
	}
	hint := "a status is one of " + strings.Join(names, ", ")
	if near := Nearest(s.Value, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	if alias, ok := map[string]string{
		"success": "succeeded", "failure": "failed", "canceled": "cancelled", "error": "failed", "timeout": "timed_out",
	}[s.Value]; ok {
		hint = "did you mean " + alias + "?"
	}
	r.fail(other, hint, "%q is no status", s.Value)
}

// typeError says in our words what the library's checker found.
func typeError(p part, err error) *Error {
	var f *file.Error
	if !errors.As(err, &f) {
		return &Error{Offset: p.offset, Message: err.Error()}
	}
	message, hint := translate(strings.TrimSpace(f.Message))
	return &Error{Offset: p.offset + bytesOf(p.text, f.From), Message: message, Hint: hint}
}

var (
	mismatchRE = regexp.MustCompile(`^invalid operation: (\S+) \(mismatched types (.+) and (.+)\)$`)
	unaryRE    = regexp.MustCompile(`^invalid operation: (\S+) \(mismatched type (.+)\)$`)
	argumentRE = regexp.MustCompile(`^cannot use (.+) as argument \(type (.+)\) to call (\S+)$`)
	conditonRE = regexp.MustCompile(`^non-bool expression \(type (.+)\) used as condition$`)
	builtinRE  = regexp.MustCompile(`^builtin (\S+) takes only array \(got (.+)\)$`)
	resultRE   = regexp.MustCompile(`^predicate should return boolean \(got (.+)\)$`)
)

func translate(m string) (message, hint string) {
	if g := mismatchRE.FindStringSubmatch(m); g != nil {
		left, right := goType(g[2]), goType(g[3])
		if left != right && strings.Contains(left+right, "text") && strings.Contains(left+right, "number") {
			hint = `3 is a number and "3" a text; string( ), int( ) and float( ) convert`
		}
		return fmt.Sprintf("%s does not work between %s and %s", g[1], left, right), hint
	}
	if g := unaryRE.FindStringSubmatch(m); g != nil {
		return fmt.Sprintf("%s does not work on %s", g[1], goType(g[2])), ""
	}
	if g := argumentRE.FindStringSubmatch(m); g != nil {
		return fmt.Sprintf("%s needs %s, found %s", g[3], goType(g[2]), goType(g[1])), ""
	}
	if g := conditonRE.FindStringSubmatch(m); g != nil {
		return "expected true or false before the ?, found " + goType(g[1]), ""
	}
	if g := builtinRE.FindStringSubmatch(m); g != nil {
		return fmt.Sprintf("%s needs a list, found %s", g[1], goType(g[2])), "make a list of a text with split"
	}
	if g := resultRE.FindStringSubmatch(m); g != nil {
		return "the condition must be true or false, it is " + goType(g[1]), ""
	}
	return m, ""
}

func goType(name string) string {
	switch name {
	case "string":
		return "text"
	case "int":
		return "a whole number"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "nil", "<nil>":
		return "null"
	case "unknown", "interface {}":
		return "something of unknown type"
	}
	if strings.HasPrefix(name, "[]") {
		return "a list"
	}
	return name
}
