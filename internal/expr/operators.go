package expr

import (
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm/runtime"
)

// binary evaluates an operator of two sides. Those that can end early do.
func (e *evaluator) binary(n *ast.BinaryNode) (any, error) {
	left, err := e.eval(n.Left)
	if err != nil {
		return nil, err
	}
	switch n.Operator {
	case "&&", "and":
		if b, err := e.boolean(n.Left, left); err != nil || !b {
			return false, err
		}
		return e.rightBoolean(n)
	case "||", "or":
		if b, err := e.boolean(n.Left, left); err != nil || b {
			return true, err
		}
		return e.rightBoolean(n)
	case "??":
		if left != nil {
			return left, nil
		}
		return e.eval(n.Right)
	case "matches":
		if left == nil {
			return false, nil
		}
		s, err := e.text(n.Left, left)
		if err != nil {
			return nil, err
		}
		return e.matches(n, s)
	}
	right, err := e.eval(n.Right)
	if err != nil {
		return nil, err
	}
	if err := e.charge(n, weight(left)+weight(right)); err != nil {
		return nil, err
	}
	return e.operate(n, left, right)
}

func (e *evaluator) rightBoolean(n *ast.BinaryNode) (any, error) {
	v, err := e.eval(n.Right)
	if err != nil {
		return nil, err
	}
	return e.boolean(n.Right, v)
}

// operate does what the operator says. The arithmetic is the library's, whose
// panics run turns into errors.
func (e *evaluator) operate(n *ast.BinaryNode, l, r any) (any, error) {
	switch n.Operator {
	case "==":
		return runtime.Equal(l, r), nil
	case "!=":
		return !runtime.Equal(l, r), nil
	case "in":
		return runtime.In(l, r), nil
	case "contains", "startsWith", "endsWith":
		return e.compareText(n, l, r)
	}
	if l == nil || r == nil {
		return nil, e.fail(n, "%s needs two values, found null", n.Operator)
	}
	switch n.Operator {
	case "<":
		return runtime.Less(l, r), nil
	case ">":
		return runtime.More(l, r), nil
	case "<=":
		return runtime.LessOrEqual(l, r), nil
	case ">=":
		return runtime.MoreOrEqual(l, r), nil
	case "+":
		return e.add(n, l, r)
	case "-":
		return runtime.Subtract(l, r), nil
	case "*":
		return runtime.Multiply(l, r), nil
	case "/":
		return runtime.Divide(l, r), nil
	case "%":
		return runtime.Modulo(l, r), nil
	case "**", "^":
		return runtime.Exponent(l, r), nil
	}
	return nil, e.fail(n, "unknown operator %s", n.Operator)
}

func (e *evaluator) add(n *ast.BinaryNode, l, r any) (any, error) {
	if weight(l)+weight(r) > MaxText {
		return nil, e.fail(n, "the text becomes longer than %d bytes", MaxText)
	}
	return runtime.Add(l, r), nil
}

// compareText looks for the right text in the left one. There is nothing in
// null, and null is nowhere.
func (e *evaluator) compareText(n *ast.BinaryNode, l, r any) (any, error) {
	if l == nil || r == nil {
		return false, nil
	}
	a, err := e.text(n.Left, l)
	if err != nil {
		return nil, err
	}
	b, err := e.text(n.Right, r)
	if err != nil {
		return nil, err
	}
	switch n.Operator {
	case "contains":
		return strings.Contains(a, b), nil
	case "startsWith":
		return strings.HasPrefix(a, b), nil
	}
	return strings.HasSuffix(a, b), nil
}

func (e *evaluator) text(n ast.Node, v any) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", e.fail(n, "expected text, found %s", describe(v))
	}
	return s, nil
}

// predicate evaluates the functions that take a condition on # for each item.
func (e *evaluator) predicate(n *ast.BuiltinNode) (any, error) {
	v, err := e.eval(n.Arguments[0])
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok {
		return nil, e.fail(n.Arguments[0], "%s needs a list, found %s", n.Name, describe(v))
	}
	var kept []any
	for _, item := range list {
		result, err := e.each(n, item)
		if err != nil {
			return nil, err
		}
		if n.Name == "map" {
			kept = append(kept, result)
			continue
		}
		yes, err := e.boolean(n.Arguments[1], result)
		if err != nil {
			return nil, err
		}
		if yes {
			kept = append(kept, item)
		}
		if decided(n.Name, yes) {
			break
		}
	}
	return conclude(n.Name, kept, len(list)), nil
}

func (e *evaluator) each(n *ast.BuiltinNode, item any) (any, error) {
	if len(n.Arguments) == 1 { // count(list) counts the items that are true
		return item, nil
	}
	e.items = append(e.items, item)
	defer func() { e.items = e.items[:len(e.items)-1] }()
	body, ok := n.Arguments[1].(*ast.PredicateNode)
	if !ok {
		return nil, e.fail(n, "%s needs a condition", n.Name)
	}
	return e.eval(body.Node)
}

// predicates are the functions over lists whose second argument is evaluated
// for each item.
func predicates() []string {
	return []string{"all", "any", "count", "filter", "find", "map", "none", "one"}
}

// decided reports whether no later item can change the result.
func decided(name string, yes bool) bool {
	switch name {
	case "all":
		return !yes
	case "any", "none", "find":
		return yes
	}
	return false
}

func conclude(name string, kept []any, of int) any {
	switch name {
	case "all":
		return len(kept) == of
	case "any":
		return len(kept) > 0
	case "none":
		return len(kept) == 0
	case "one":
		return len(kept) == 1
	case "count":
		return len(kept)
	case "find":
		if len(kept) == 0 {
			return nil
		}
		return kept[0]
	}
	return kept
}
