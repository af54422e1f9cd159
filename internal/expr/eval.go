package expr

import (
	"fmt"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm/runtime"
)

// evaluator walks an expression once. It counts what it does.
type evaluator struct {
	part  part
	scope Scope
	cost  int
	// items are what # stands for, the innermost last.
	items []any
	// last is the node that is being worked on, for the place of an error.
	last ast.Node
}

func (e *evaluator) fail(n ast.Node, format string, args ...any) error {
	return &Error{Offset: e.part.at(n), Message: fmt.Sprintf(format, args...)}
}

// charge counts a step and the work on so many bytes or items.
func (e *evaluator) charge(n ast.Node, size int) error {
	const perStep = 8
	e.last = n
	if e.cost += 1 + size/perStep; e.cost > maxCost {
		return e.fail(n, "the expression takes too many steps")
	}
	return nil
}

func (e *evaluator) eval(node ast.Node) (any, error) {
	if err := e.charge(node, 0); err != nil {
		return nil, err
	}
	switch n := node.(type) {
	case *ast.NilNode:
		return nil, nil
	case *ast.StringNode:
		return n.Value, nil
	case *ast.IntegerNode:
		return n.Value, nil
	case *ast.FloatNode:
		return n.Value, nil
	case *ast.BoolNode:
		return n.Value, nil
	case *ast.ChainNode:
		return e.eval(n.Node)
	case *ast.IdentifierNode:
		return e.name(n)
	case *ast.MemberNode:
		return e.member(n)
	case *ast.PointerNode:
		return e.items[len(e.items)-1], nil
	case *ast.UnaryNode:
		return e.unary(n)
	case *ast.BinaryNode:
		return e.binary(n)
	case *ast.ConditionalNode:
		return e.conditional(n)
	case *ast.ArrayNode:
		return e.list(n.Nodes)
	case *ast.SliceNode:
		return e.slice(n)
	case *ast.CallNode:
		return e.call(n)
	case *ast.BuiltinNode:
		return e.predicate(n)
	}
	return nil, e.fail(node, "unexpected %T", node)
}

// name reads a whole reference, such as stages.build.status.
func (e *evaluator) name(n ast.Node) (any, error) {
	path, err := pathOf(n)
	if err != nil {
		return nil, e.fail(err.node, "%s", err.message)
	}
	var v any = map[string]any(e.scope)
	for i, key := range path {
		switch m := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = m[key]; !ok && i == 0 {
				return nil, e.fail(n, "unknown name %s", key)
			}
		case map[string]string:
			if s, ok := m[key]; ok {
				v = s
			} else {
				v = nil
			}
		case nil:
			return nil, nil
		default:
			return nil, e.fail(n, "%s is %s, it has no %s", strings.Join(path[:i], "."), describe(v), key)
		}
	}
	return normal(v), nil
}

// member reads a reference, or an item of a list that something else made.
func (e *evaluator) member(n *ast.MemberNode) (any, error) {
	if rooted(n) {
		return e.name(n)
	}
	base, err := e.eval(n.Node)
	if err != nil || base == nil {
		return nil, err
	}
	index, err := e.eval(n.Property)
	if err != nil {
		return nil, err
	}
	list, isList := base.([]any)
	i, isInt := index.(int)
	if !isList || !isInt {
		return nil, e.fail(n, "cannot take %s of %s", describe(index), describe(base))
	}
	if i < 0 {
		i += len(list)
	}
	if i < 0 || i >= len(list) {
		return nil, e.fail(n, "there is no item %v in a list of %d", index, len(list))
	}
	return list[i], nil
}

func (e *evaluator) unary(n *ast.UnaryNode) (any, error) {
	v, err := e.eval(n.Node)
	if err != nil {
		return nil, err
	}
	e.last = n
	switch n.Operator {
	case "!", "not":
		b, err := e.boolean(n.Node, v)
		return !b, err
	case "-":
		return runtime.Negate(v), nil
	}
	return v, nil
}

func (e *evaluator) boolean(n ast.Node, v any) (bool, error) {
	b, ok := v.(bool)
	if !ok {
		return false, e.fail(n, "expected true or false, found %s", describe(v))
	}
	return b, nil
}

func (e *evaluator) conditional(n *ast.ConditionalNode) (any, error) {
	v, err := e.eval(n.Cond)
	if err != nil {
		return nil, err
	}
	yes, err := e.boolean(n.Cond, v)
	switch {
	case err != nil:
		return nil, err
	case yes:
		return e.eval(n.Exp1)
	}
	return e.eval(n.Exp2)
}

func (e *evaluator) list(nodes []ast.Node) ([]any, error) {
	out := make([]any, len(nodes))
	for i, n := range nodes {
		v, err := e.eval(n)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// slice takes a part of a list, or of a text by its characters.
func (e *evaluator) slice(n *ast.SliceNode) (any, error) {
	base, err := e.eval(n.Node)
	if err != nil || base == nil {
		return nil, err
	}
	s, isText := base.(string)
	if isText {
		if err := e.charge(n, len(s)); err != nil {
			return nil, err
		}
		base = []rune(s)
	}
	size := runtime.Len(base)
	from, err := e.index(n.From, 0)
	if err != nil {
		return nil, err
	}
	to, err := e.index(n.To, size)
	if err != nil {
		return nil, err
	}
	switch part := runtime.Slice(base, from, to).(type) {
	case []rune:
		return string(part), nil
	default:
		return part, nil
	}
}

func (e *evaluator) index(n ast.Node, otherwise int) (int, error) {
	if n == nil {
		return otherwise, nil
	}
	v, err := e.eval(n)
	if err != nil {
		return 0, err
	}
	i, ok := v.(int)
	if !ok {
		return 0, e.fail(n, "expected a whole number, found %s", describe(v))
	}
	return i, nil
}

// call calls one of our own functions.
func (e *evaluator) call(n *ast.CallNode) (any, error) {
	id, ok := n.Callee.(*ast.IdentifierNode)
	if !ok {
		return nil, e.fail(n, "only functions can be called")
	}
	args, err := e.list(n.Arguments)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, a := range args {
		size += weight(a)
	}
	if err := e.charge(n, size); err != nil {
		return nil, err
	}
	v, err := functions[id.Value].call(args)
	if err != nil {
		return nil, e.fail(n, "%s: %s", id.Value, err)
	}
	return v, e.charge(n, weight(v))
}

// weight is the size of a value as work on it counts.
func weight(v any) int {
	const item = 16
	switch v := v.(type) {
	case string:
		return len(v)
	case []any:
		size := item * len(v)
		for _, x := range v {
			size += weight(x)
		}
		return size
	}
	return 0
}
