package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

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
