package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/builtin"
)

// function is one of the functions that expressions may call. Forms are the
// types of its arguments and results, as functions of Go, for the checker.
type function struct {
	name  string
	forms []any
	call  func(args []any) (any, error)
}

// functions are the functions by name. Nothing changes them.
var functions = byName(
	onNumber("abs", math.Abs),
	onNumber("ceil", math.Ceil),
	function{"first", []any{func([]any) any { return nil }}, func(a []any) (any, error) { return itemOf(a[0], false) }},
	function{"float", []any{func(any) float64 { return 0 }}, toFloat},
	onNumber("floor", math.Floor),
	function{"int", []any{func(any) int { return 0 }}, toInt},
	function{"join", []any{func([]any, ...string) string { return "" }}, join},
	function{"last", []any{func([]any) any { return nil }}, func(a []any) (any, error) { return itemOf(a[0], true) }},
	function{"len", []any{func(string) int { return 0 }, func([]any) int { return 0 }}, length},
	onText("lower", strings.ToLower),
	onNumbers("max", math.Max),
	onNumbers("min", math.Min),
	function{"replace", []any{func(string, string, string) string { return "" }}, replace},
	onNumber("round", math.Round),
	function{"split", []any{func(string, string) []any { return nil }}, splitText},
	function{"string", []any{func(any) string { return "" }}, toText},
	function{"toJSON", []any{func(any) string { return "" }}, toJSON},
	onText("trim", strings.TrimSpace),
	onTwoTexts("trimPrefix", strings.TrimPrefix),
	onTwoTexts("trimSuffix", strings.TrimSuffix),
	onText("upper", strings.ToUpper),
)

// functionNames are the names of all functions, those over lists included.
func functionNames() []string {
	return slices.Sorted(slices.Values(append(predicates(), slices.Collect(maps.Keys(functions))...)))
}

func byName(list ...function) map[string]function {
	all := make(map[string]function, len(list))
	for _, f := range list {
		all[f.name] = f
	}
	return all
}

// declared are the functions as the library's parser and checker know them.
var declared = declare()

func declare() map[string]*builtin.Function {
	all := make(map[string]*builtin.Function, len(functions))
	for name, f := range functions {
		types := make([]reflect.Type, len(f.forms))
		for i, form := range f.forms {
			types[i] = reflect.TypeOf(form)
		}
		all[name] = &builtin.Function{
			Name:  name,
			Func:  func(args ...any) (any, error) { return f.call(args) },
			Types: types,
		}
	}
	return all
}

func onText(name string, f func(string) string) function {
	return function{name, []any{f}, func(a []any) (any, error) {
		s, err := texts(a, 1)
		if err != nil {
			return nil, err
		}
		return f(s[0]), nil
	}}
}

func onTwoTexts(name string, f func(a, b string) string) function {
	return function{name, []any{f}, func(a []any) (any, error) {
		s, err := texts(a, 2)
		if err != nil {
			return nil, err
		}
		return f(s[0], s[1]), nil
	}}
}

func onNumber(name string, f func(float64) float64) function {
	return function{name, []any{f}, func(a []any) (any, error) {
		n, err := floats(a, 1)
		if err != nil {
			return nil, err
		}
		return normal(f(n[0])), nil
	}}
}

func onNumbers(name string, f func(a, b float64) float64) function {
	form := func(first float64, _ ...float64) float64 { return first }
	return function{name, []any{form}, func(a []any) (any, error) {
		n, err := floats(a, max(1, len(a)))
		if err != nil {
			return nil, err
		}
		best := n[0]
		for _, x := range n[1:] {
			best = f(best, x)
		}
		return normal(best), nil
	}}
}

// texts are the arguments of a function that wants n texts.
func texts(args []any, n int) ([]string, error) {
	if len(args) != n {
		return nil, fmt.Errorf("expected %d arguments, found %d", n, len(args))
	}
	out := make([]string, n)
	for i, a := range args {
		s, ok := a.(string)
		if !ok {
			return nil, fmt.Errorf("expected text, found %s", describe(a))
		}
		out[i] = s
	}
	return out, nil
}

// floats are the arguments of a function that wants n numbers.
func floats(args []any, n int) ([]float64, error) {
	if len(args) != n {
		return nil, fmt.Errorf("expected %d arguments, found %d", n, len(args))
	}
	out := make([]float64, n)
	for i, a := range args {
		switch v := a.(type) {
		case int:
			out[i] = float64(v)
		case float64:
			out[i] = v
		default:
			return nil, fmt.Errorf("expected a number, found %s", describe(a))
		}
	}
	return out, nil
}

func one(args []any) (any, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("expected 1 argument, found %d", len(args))
	}
	return args[0], nil
}

func itemOf(v any, last bool) (any, error) {
	list, ok := v.([]any)
	switch {
	case !ok:
		return nil, fmt.Errorf("expected a list, found %s", describe(v))
	case len(list) == 0:
		return nil, nil
	case last:
		return list[len(list)-1], nil
	}
	return list[0], nil
}

func length(args []any) (any, error) {
	v, err := one(args)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), nil
	case []any:
		return len(v), nil
	}
	return nil, fmt.Errorf("expected text or a list, found %s", describe(v))
}

func splitText(args []any) (any, error) {
	s, err := texts(args, 2)
	if err != nil {
		return nil, err
	}
	if strings.Count(s[0], s[1]) >= MaxItems {
		return nil, fmt.Errorf("the list would have more than %d items", MaxItems)
	}
	parts := strings.Split(s[0], s[1])
	list := make([]any, len(parts))
	for i, p := range parts {
		list[i] = p
	}
	return list, nil
}

func replace(args []any) (any, error) {
	s, err := texts(args, 3)
	if err != nil {
		return nil, err
	}
	if len(s[0])+strings.Count(s[0], s[1])*(len(s[2])-len(s[1])) > MaxText {
		return nil, errTooLong()
	}
	return strings.ReplaceAll(s[0], s[1], s[2]), nil
}

func join(args []any) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("expected a list")
	}
	list, ok := args[0].([]any)
	if !ok {
		return nil, fmt.Errorf("expected a list, found %s", describe(args[0]))
	}
	separator := ""
	if len(args) > 1 {
		s, err := texts(args[1:], 1)
		if err != nil {
			return nil, err
		}
		separator = s[0]
	}
	parts, size := make([]string, len(list)), 0
	for i, v := range list {
		t, ok := text(v)
		if !ok {
			return nil, fmt.Errorf("an item of the list is %s, which has no text form", describe(v))
		}
		if size += len(t) + len(separator); size > MaxText {
			return nil, errTooLong()
		}
		parts[i] = t
	}
	return strings.Join(parts, separator), nil
}

func toText(args []any) (any, error) {
	v, err := one(args)
	if err != nil {
		return nil, err
	}
	s, ok := text(v)
	if !ok {
		return nil, fmt.Errorf("%s has no text form", describe(v))
	}
	return s, nil
}

func toJSON(args []any) (any, error) {
	v, err := one(args)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(v)
	switch {
	case err != nil:
		return nil, fmt.Errorf("writing JSON: %w", err)
	case len(b) > MaxText:
		return nil, errTooLong()
	}
	return string(b), nil
}

func toInt(args []any) (any, error) {
	v, err := one(args)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case int:
		return v, nil
	case float64:
		if math.Abs(v) < math.MaxInt64 {
			return int(v), nil
		}
	case string:
		if i, err := strconv.Atoi(v); err == nil {
			return i, nil
		}
		return nil, fmt.Errorf("%.40q is not a whole number", v)
	}
	return nil, fmt.Errorf("cannot make a whole number of %s", describe(v))
}

func toFloat(args []any) (any, error) {
	v, err := one(args)
	if err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, fmt.Errorf("%.40q is not a number", s)
		}
		return normal(f), nil
	}
	n, err := floats(args, 1)
	if err != nil {
		return nil, err
	}
	return normal(n[0]), nil
}

func errTooLong() error {
	return fmt.Errorf("the text becomes longer than %d bytes", MaxText)
}
