package spec

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
)

// text is any text. A value that YAML reads as something else has to be quoted,
// so that nobody is surprised by what becomes of yes, 1.20 or 0644.
func text() kind[string] {
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			if n.Kind != yaml.ScalarNode || !slices.Contains([]string{"!!str", "!!timestamp"}, n.ShortTag()) {
				p.errorf(n, quoteHint(n), "expected text, found %s", found(n))
				return "", false
			}
			return n.Value, p.noNUL(n)
		},
		schema: func(schemas) schema { return schema{"type": "string"} },
	}
}

// filled is text that is not empty.
func filled(what string) kind[string] {
	t := text()
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			s, ok := t.read(p, n)
			if ok && strings.TrimSpace(s) == "" {
				p.errorf(n, "", "expected %s, found an empty text", what)
				return "", false
			}
			return s, ok
		},
		schema: func(schemas) schema { return schema{"type": "string", "pattern": `\S`} },
	}
}

// literal is the text of a scalar as it is written in the file: 1.20 stays 1.20.
func literal() kind[string] {
	return kind[string]{
		read: func(p *parser, n *yaml.Node) (string, bool) {
			switch {
			case n.Kind != yaml.ScalarNode:
				p.errorf(n, "", "expected text, found %s", found(n))
				return "", false
			case n.ShortTag() == "!!null":
				p.errorf(n, `write "" for an empty text`, "expected text, found nothing")
				return "", false
			}
			return n.Value, p.noNUL(n)
		},
		schema: func(schemas) schema { return schema{"type": []string{"string", "number", "boolean"}} },
	}
}

func (p *parser) noNUL(n *yaml.Node) bool {
	if strings.ContainsRune(n.Value, 0) {
		p.errorf(n, "remove it", "a text may not hold the character NUL")
		return false
	}
	return true
}

func quoteHint(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Value != "" {
		return fmt.Sprintf("quote it: %q", clip(n.Value))
	}
	return ""
}

// word is one of a few words.
func word[S ~string](words ...S) kind[S] {
	return kind[S]{
		read: func(p *parser, n *yaml.Node) (S, bool) {
			list := make([]string, len(words))
			for i, w := range words {
				if list[i] = string(w); n.Kind == yaml.ScalarNode && n.Value == string(w) {
					return w, true
				}
			}
			hint := ""
			if near := expr.Nearest(n.Value, list); near != "" && n.Kind == yaml.ScalarNode {
				hint = "did you mean " + near + "?"
			}
			p.errorf(n, hint, "expected %s, found %s", joined(list, "or"), found(n))
			return "", false
		},
		schema: func(schemas) schema { return schema{"enum": words} },
	}
}

// boolean is true or false, and nothing that YAML 1.1 also took for it.
func boolean() kind[bool] {
	return kind[bool]{
		read: func(p *parser, n *yaml.Node) (bool, bool) {
			if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" {
				return strings.EqualFold(n.Value, "true"), true
			}
			hint := ""
			switch strings.ToLower(n.Value) {
			case "yes", "on", "y":
				hint = "write true"
			case "no", "off", "n":
				hint = "write false"
			}
			p.errorf(n, hint, "expected true or false, found %s", found(n))
			return false, false
		},
		schema: func(schemas) schema { return schema{"type": "boolean"} },
	}
}

// integer is a whole number in plain decimal form, from 1 to high.
func integer(high int) kind[int] {
	const low = 1
	return kind[int]{
		read: func(p *parser, n *yaml.Node) (int, bool) {
			what := fmt.Sprintf("a whole number from %d to %d", low, high)
			if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" {
				p.errorf(n, "", "expected %s, found %s", what, found(n))
				return 0, false
			}
			i, err := decimal(n.Value)
			switch {
			case err != nil:
				p.errorf(n, "write it in decimal digits", "expected %s, found %s", what, clip(n.Value))
				return 0, false
			case i < low || i > high:
				p.errorf(n, "", "expected %s, found %s", what, clip(n.Value))
				return 0, false
			}
			return i, true
		},
		schema: func(schemas) schema { return schema{"type": "integer", "minimum": low, "maximum": high} },
	}
}

// decimal reads a whole number without a leading zero, a + or a _: 010 is eight
// to some readers of YAML and ten to others.
func decimal(s string) (int, error) {
	digits := strings.TrimPrefix(s, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" || len(digits) > 1 && digits[0] == '0' {
		return 0, fmt.Errorf("%s is no decimal number", clip(s))
	}
	i, err := strconv.Atoi(s)
	if err != nil {
		if s[0] == '-' {
			return math.MinInt, nil
		}
		return math.MaxInt, nil
	}
	return i, nil
}

// factor is a number from low to high.
func factor(low, high float64) kind[float64] {
	return kind[float64]{
		read: func(p *parser, n *yaml.Node) (float64, bool) {
			f, err := strconv.ParseFloat(n.Value, 64)
			if n.Kind != yaml.ScalarNode || err != nil || !(f >= low && f <= high) {
				p.errorf(n, "", "expected a number from %v to %v, found %s", low, high, found(n))
				return 0, false
			}
			return f, true
		},
		schema: func(schemas) schema { return schema{"type": "number", "minimum": low, "maximum": high} },
	}
}
