package expr

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
)

// parse reads the expression of a part, and refuses what the library's language
// has but expressions here do not.
func parse(p part, c *conf.Config) (ast.Node, error) {
	switch {
	case strings.TrimSpace(p.text) == "":
		return nil, &Error{Offset: p.offset, Message: "the expression is empty"}
	case len(p.text) > MaxLength:
		return nil, &Error{Offset: p.offset, Message: fmt.Sprintf("the expression is %d bytes long, at most %d are allowed", len(p.text), MaxLength)}
	}
	tree, err := parser.ParseWithConfig(p.text, c)
	if err != nil {
		return nil, syntaxError(p, err)
	}
	if bad := foreign(tree.Node); len(bad) > 0 {
		return nil, &Error{Offset: p.at(bad[0].node), Message: bad[0].message, Hint: bad[0].hint}
	}
	return tree.Node, nil
}

// syntaxError says what the parser found, at its place in the template.
func syntaxError(p part, err error) error {
	var f *file.Error
	if !errors.As(err, &f) {
		return &Error{Offset: p.offset, Message: err.Error()}
	}
	m := f.Message
	hint := ""
	switch {
	case strings.Contains(m, "maximum allowed nodes"):
		m = fmt.Sprintf("the expression holds more than %d names, values and operators", MaxNodes)
	case strings.Contains(m, `unexpected token Operator("=")`):
		hint = "compare with =="
	case strings.Contains(m, "unexpected token EOF"), strings.Contains(m, "unexpected end"):
		m = "the expression ends too early"
	case strings.Contains(m, "literal not terminated"):
		m = "a quoted text is not closed"
	}
	m = tokenRE.ReplaceAllString(m, "unexpected $1")
	return &Error{Offset: p.offset + bytesOf(p.text, f.From), Message: m, Hint: hint}
}

var tokenRE = regexp.MustCompile(`unexpected token \w+\("(.*)"\)`)

// foreignNode is something of the language that expressions here do not have.
type foreignNode struct {
	node          ast.Node
	message, hint string
}

type foreignFinder struct{ found []foreignNode }

// foreign lists what of the language is not ours, in the order of reading.
func foreign(n ast.Node) []foreignNode {
	f := &foreignFinder{}
	ast.Walk(&n, f)
	slices.SortStableFunc(f.found, func(a, b foreignNode) int {
		return a.node.Location().From - b.node.Location().From
	})
	return f.found
}

func (f *foreignFinder) add(n ast.Node, message, hint string) {
	f.found = append(f.found, foreignNode{n, message, hint})
}

// Visit implements ast.Visitor.
func (f *foreignFinder) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.VariableDeclaratorNode:
		f.add(n, "let is not supported in expressions", "")
	case *ast.SequenceNode:
		f.add(n, "an expression is one value, found several separated by ;", "")
	case *ast.MapNode:
		f.add(n, "{ } is not supported in expressions", "")
	case *ast.BytesNode:
		f.add(n, "byte strings are not supported in expressions", "")
	case *ast.BinaryNode:
		f.operator(n)
	case *ast.PointerNode:
		if n.Name != "" {
			f.add(n, fmt.Sprintf("#%s is not supported in expressions", n.Name), "use # for the item")
		}
	case *ast.BuiltinNode:
		if !slices.Contains(predicates(), n.Name) {
			f.unknownFunction(n, n.Name)
		}
	case *ast.CallNode:
		id, ok := n.Callee.(*ast.IdentifierNode)
		if !ok {
			f.add(n, "only functions can be called", "")
		} else if _, ok := functions[id.Value]; !ok {
			f.unknownFunction(n, id.Value)
		}
	case *ast.ConstantNode:
		f.add(n, "unexpected constant", "")
	}
}

func (f *foreignFinder) operator(n *ast.BinaryNode) {
	switch n.Operator {
	case "..":
		f.add(n, "the operator .. is not supported in expressions", "")
	case "matches":
		pattern, ok := n.Right.(*ast.StringNode)
		if !ok {
			f.add(n.Right, "the pattern of matches must be a quoted text", "")
		} else if _, _, err := compile(pattern.Value); err != nil {
			f.add(n.Right, err.Error(), "")
		}
	}
}

func (f *foreignFinder) unknownFunction(n ast.Node, name string) {
	switch name {
	case "now", "date", "duration", "timezone":
		f.add(n, fmt.Sprintf("function %s is not available: an expression may not depend on the clock", name),
			"run.scheduled_at is the time the run was asked for")
	case "keys", "values", "toPairs", "fromPairs", "groupBy":
		f.add(n, fmt.Sprintf("function %s is not available: its result has no fixed order", name), "")
	default:
		hint := ""
		if near := Nearest(name, functionNames()); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		f.add(n, "unknown function "+name, hint)
	}
}
