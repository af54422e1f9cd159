package expr

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

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
