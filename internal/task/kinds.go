package task

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"belay.run/internal/expr"
)

// readKind reads a parameter's value as its kind has it, or says what is wrong.
// Numbers, truth values and lists of one are also read from text: an expression
// and a command line give nothing else.
func readKind(p Param, value any) (read any, wrong string) {
	switch p.Kind {
	case Number:
		return readNumber(value)
	case Truth:
		return readTruth(value)
	case Duration:
		return readDuration(value)
	case Texts:
		return readTexts(value)
	case Table:
		return readTable(value)
	case Text, Secret:
		return readText(p, value)
	}
	return nil, fmt.Sprintf("its kind %q is not known", p.Kind)
}

func readText(p Param, value any) (any, string) {
	s, ok := value.(string)
	if !ok {
		return nil, "found " + found(value) + ", expected text" + quoted(value)
	}
	if p.Kind == Secret && s == "" {
		return nil, "it is empty, expected the name of a secret"
	}
	if len(p.Enum) > 0 && !slices.Contains(p.Enum, s) {
		if near := expr.Nearest(s, p.Enum); near != "" {
			return nil, fmt.Sprintf("found %.64q, did you mean %s?", s, near)
		}
		return nil, fmt.Sprintf("found %.64q, expected %s", s, oneOf(p.Enum))
	}
	return s, ""
}

// quoted is advice where text was written without quotes.
func quoted(value any) string {
	switch value.(type) {
	case json.Number, bool:
		return ": put it in quotes"
	}
	return ""
}

func readNumber(value any) (any, string) {
	text, ok := value.(string)
	if n, isNumber := value.(json.Number); isNumber {
		text, ok = n.String(), true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		return nil, "found " + found(value) + ", expected a whole number"
	}
	return n, ""
}

func readTruth(value any) (any, string) {
	switch value {
	case true, "true":
		return true, ""
	case false, "false":
		return false, ""
	}
	return nil, "found " + found(value) + ", expected true or false"
}

func readDuration(value any) (any, string) {
	s, ok := value.(string)
	d, err := time.ParseDuration(s)
	if !ok || err != nil || d < 0 {
		return nil, "found " + found(value) + ", expected a duration such as 90s, 5m or 1h30m"
	}
	return d, ""
}

// readTexts takes numbers as they are written: status: [200, 204].
func readTexts(value any) (any, string) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	texts := make([]string, len(list))
	for i, v := range list {
		switch v := v.(type) {
		case string:
			texts[i] = v
		case json.Number:
			texts[i] = v.String()
		default:
			return nil, "found " + found(v) + ", expected a list of texts"
		}
	}
	return texts, ""
}

func readTable(value any) (any, string) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, "found " + found(value) + ", expected texts by name"
	}
	table := make(map[string]string, len(object))
	for _, name := range slices.Sorted(maps.Keys(object)) {
		s, ok := object[name].(string)
		if !ok {
			return nil, fmt.Sprintf("%.64s: found %s, expected text%s", name, found(object[name]), quoted(object[name]))
		}
		table[name] = s
	}
	return table, ""
}

// found describes a value of JSON for people. It shows no more of a text than
// its beginning, and nothing of what is in a list or an object.
func found(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("%.64q", v)
	case json.Number:
		return "the number " + v.String()
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	case json.Delim:
		if v == '[' {
			return "a list"
		}
	}
	return fmt.Sprint(value)
}

// oneOf is "a, b or c".
func oneOf(all []string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// listed is "a, b and c".
func listed(all []string) string {
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}
