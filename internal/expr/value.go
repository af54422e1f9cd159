package expr

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// normal is a value of a scope as evaluation sees it. A whole number is an int
// whether or not it passed through JSON, which knows only one kind.
func normal(v any) any {
	switch v := v.(type) {
	case nil, string, bool, int:
		return v
	case int64:
		return int(v)
	case float64:
		if whole(v) {
			return int(v)
		}
		return v
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return int(i)
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
		return v.String()
	case fmt.Stringer:
		return v.String()
	}
	return v
}

// whole reports whether f is an integer that a float holds exactly.
func whole(f float64) bool {
	const exact = 1 << 53
	return f == math.Trunc(f) && math.Abs(f) <= exact
}

// text is the text form of a value; only text, numbers and booleans have one.
func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int:
		return strconv.Itoa(v), true
	case float64:
		return number(v)
	}
	return "", false
}

func number(f float64) (string, bool) {
	const plain = 1e21
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return "", false
	case math.Abs(f) >= plain:
		return strconv.FormatFloat(f, 'g', -1, 64), true
	}
	return strconv.FormatFloat(f, 'f', -1, 64), true
}

// describe names the kind of a value, for messages.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "text"
	case bool:
		return "true or false"
	case int:
		return "a number"
	case float64:
		if _, ok := number(v); !ok {
			return "not a finite number"
		}
		return "a number"
	case []any:
		return "a list"
	case map[string]any, map[string]string:
		return "a group of names"
	}
	return fmt.Sprintf("a %T", v)
}
