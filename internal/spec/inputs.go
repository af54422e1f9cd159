package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"belay.run/internal/expr"
)

// The types of inputs.
const (
	stringType = "string"
	intType    = "int"
	numberType = "number"
	boolType   = "bool"
)

// maxInput is how long the text of an input may be, in bytes.
const maxInput = 64 << 10

// maxExact is the largest whole number that stays itself in JSON, in which runs
// keep their inputs: of those beyond it, two would be one, and have one key.
const maxExact = 1<<53 - 1

// Input is a declared input of a pipeline. Its values are string, int, float64
// or bool, by Type.
type Input struct {
	Name        string
	Type        string
	Description string
	// Default is nil where the input has none; then it must be given, unless it
	// is Optional: then it is null.
	Default  any
	Optional bool
	Enum     []any
}

// inputs checks the declared inputs.
func (c *checker) inputs(entries []entry[rawInput]) []Input {
	out := make([]Input, 0, len(entries))
	for _, e := range entries {
		raw := e.val.v
		in := Input{Name: e.key, Type: raw.typ.or(stringType), Description: raw.description.v}
		for _, v := range raw.enum.v {
			if value, ok := c.value(in, v.v, "the values of enum"); ok {
				if slices.Contains(in.Enum, value) {
					c.p.errorf(v.node, "remove one of the two", "the value %s stands twice in enum", clip(v.node.Value))
				}
				in.Enum = append(in.Enum, value)
			}
		}
		if raw.def.given() {
			c.inputDefault(&in, raw)
		}
		in.Optional = raw.required.given() && !raw.required.v
		out = append(out, in)
	}
	return out
}

func (c *checker) inputDefault(in *Input, raw rawInput) {
	value, ok := c.value(*in, raw.def.v, "the default")
	if !ok {
		return
	}
	in.Default = value
	if !in.allows(value) {
		c.p.errorf(raw.def.node, in.nearest(value), "the default %s of the input %s is not in its enum: %s",
			quote(raw.def.node.Value), in.Name, in.choices())
	}
	if raw.required.v {
		c.p.errorf(raw.required.node, "remove one of the two", "the input %s is required and has a default", in.Name)
	}
}

// value reads a value of an input as it stands in the file.
func (c *checker) value(in Input, n *yaml.Node, what string) (any, bool) {
	tag := n.ShortTag()
	fits := map[string][]string{
		stringType: {"!!str", "!!timestamp"}, intType: {"!!int"}, numberType: {"!!int", "!!float"}, boolType: {"!!bool"},
	}[in.Type]
	if slices.Contains(fits, tag) {
		if v, err := parseInput(in.Type, n.Value); err == nil {
			return v, true
		}
	}
	hint := ""
	switch {
	case in.Type == stringType:
		hint = quoteHint(n)
	case tag == "!!int":
		hint = cmp.Or(hintExact(in.Type, n.Value), "write it in decimal digits, without a leading 0")
	case tag == "!!str":
		if _, err := parseInput(in.Type, n.Value); err == nil {
			hint = "remove the quotes"
		}
	}
	c.p.errorf(n, hint, "%s of the input %s must be %s, found %s", what, in.Name, typeName(in.Type), found(n))
	return nil, false
}

func typeName(typ string) string {
	switch typ {
	case intType:
		return "a whole number"
	case numberType:
		return "a number"
	case boolType:
		return "true or false"
	}
	return "text"
}

// parseInput reads the text of a value.
func parseInput(typ, s string) (any, error) {
	switch typ {
	case intType:
		i, err := decimal(s)
		if err != nil || i < -maxExact || i > maxExact {
			return nil, fmt.Errorf("%s is no whole number", quote(s))
		}
		return i, nil
	case numberType:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%s is no number", quote(s))
		}
		return f, nil
	case boolType:
		switch strings.ToLower(s) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, fmt.Errorf("%s is neither true nor false", quote(s))
	}
	return s, nil
}

// hintExact says what to do about a whole number that is too large.
func hintExact(typ, s string) string {
	if _, err := decimal(s); typ != intType || err != nil {
		return ""
	}
	return fmt.Sprintf("whole numbers go up to %d: make the input a string", maxExact)
}

func (in Input) allows(v any) bool { return len(in.Enum) == 0 || slices.Contains(in.Enum, v) }

func (in Input) choices() string {
	list := make([]string, len(in.Enum))
	for i, v := range in.Enum {
		list[i] = fmt.Sprint(v)
	}
	return joined(list, "or")
}

func (in Input) nearest(v any) string {
	list := make([]string, len(in.Enum))
	for i, e := range in.Enum {
		list[i] = fmt.Sprint(e)
	}
	if near := expr.Nearest(fmt.Sprint(v), list); near != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// bind checks and types the given inputs, and adds the defaults.
func (f *File) bind(given map[string]string) (map[string]any, error) {
	var problems []Problem
	add := func(hint, format string, args ...any) {
		problems = append(problems, Problem{Message: printable(fmt.Sprintf(format, args...)), Hint: hint})
	}
	values := map[string]any{}
	names := make([]string, len(f.Inputs))
	for i, in := range f.Inputs {
		names[i] = in.Name
		s, ok := given[in.Name]
		switch {
		case !ok && in.Default != nil:
			values[in.Name] = in.Default
		case !ok && !in.Optional:
			add("give it with -i "+in.Name+"=…", "the input %s is missing: %s", in.Name, in.wants())
		case ok:
			v, hint, err := in.take(s)
			if err != nil {
				add(hint, "the input %s: %s", in.Name, err)
			}
			values[in.Name] = v
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if slices.Contains(names, name) {
			continue
		}
		hint := "the pipeline has no inputs"
		if near := expr.Nearest(name, names); near != "" {
			hint = "did you mean " + near + "?"
		} else if len(names) > 0 {
			hint = "it has " + joined(names, "and")
		}
		add(hint, "unknown input %s", quote(name))
	}
	if len(problems) > 0 {
		return nil, f.invalid(problems...)
	}
	return values, nil
}

// wants describes what an input takes.
func (in Input) wants() string {
	if len(in.Enum) > 0 {
		return "expected " + in.choices()
	}
	return "expected " + typeName(in.Type)
}

func (in Input) take(s string) (v any, hint string, err error) {
	if len(s) > maxInput {
		return nil, "", fmt.Errorf("it is %d bytes long, at most %d are allowed", len(s), maxInput)
	}
	if strings.ContainsRune(s, 0) {
		return nil, "", errors.New("it holds the character NUL")
	}
	if v, err = parseInput(in.Type, s); err != nil {
		return nil, hintExact(in.Type, s), fmt.Errorf("expected %s, found %s", typeName(in.Type), quote(s))
	}
	if !in.allows(v) {
		return nil, in.nearest(v), fmt.Errorf("expected %s, found %s", in.choices(), quote(s))
	}
	return v, "", nil
}
