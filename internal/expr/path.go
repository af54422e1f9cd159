package expr

import (
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// rooted reports whether a node is a reference, which begins with a name, and
// not an item of a list that was just made.
func rooted(n ast.Node) bool {
	for {
		switch m := n.(type) {
		case *ast.MemberNode:
			n = m.Node
		case *ast.ChainNode:
			n = m.Node
		case *ast.IdentifierNode:
			return true
		default:
			return false
		}
	}
}

// step is one name of a reference.
type step struct {
	name string
	node ast.Node
}

type pathError struct {
	node    ast.Node
	message string
}

// stepsOf is a reference as its names in order: stages["a-b"].status is
// stages, a-b, status.
func stepsOf(n ast.Node) ([]step, *pathError) {
	var reversed []step
	for {
		switch m := n.(type) {
		case *ast.ChainNode:
			n = m.Node
		case *ast.MemberNode:
			name, ok := m.Property.(*ast.StringNode)
			if !ok {
				return nil, &pathError{m.Property, "a name in brackets must be a quoted text"}
			}
			reversed = append(reversed, step{name.Value, m.Property})
			n = m.Node
		case *ast.IdentifierNode:
			reversed = append(reversed, step{m.Value, m})
			slices.Reverse(reversed)
			return reversed, nil
		default:
			return nil, &pathError{n, "expected a name"}
		}
	}
}

func pathOf(n ast.Node) ([]string, *pathError) {
	steps, err := stepsOf(n)
	if err != nil {
		return nil, err
	}
	path := make([]string, len(steps))
	for i, s := range steps {
		path[i] = s.name
	}
	return path, nil
}

// Written is a reference as one writes it in an expression.
func Written(path ...string) string {
	var b strings.Builder
	for i, name := range path {
		switch {
		case !plainName(name):
			b.WriteString(`["` + name + `"]`)
		case i > 0:
			b.WriteString("." + name)
		default:
			b.WriteString(name)
		}
	}
	return b.String()
}

func writtenSteps(steps []step) string {
	path := make([]string, len(steps))
	for i, s := range steps {
		path[i] = s.name
	}
	return Written(path...)
}

func plainName(s string) bool {
	return s != "" && strings.Trim(s, nameChars) == "" && (s[0] < '0' || s[0] > '9')
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

// dashedName is the name that s begins with, dashes included.
func dashedName(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, nameChars+"-"))]
}

// list is some of a list of names, for messages.
func list(names []string) string {
	const shown = 12
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}
