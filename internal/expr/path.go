package expr

import "github.com/expr-lang/expr/ast"

// rooted reports whether a member node is part of a reference, which begins
// with a name, and not an item of a list that was just made.
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

type pathError struct {
	node    ast.Node
	message string
}

// pathOf is a reference as its names in order: stages["a-b"].status is
// stages, a-b, status.
func pathOf(n ast.Node) ([]string, *pathError) {
	switch m := n.(type) {
	case *ast.IdentifierNode:
		return []string{m.Value}, nil
	case *ast.ChainNode:
		return pathOf(m.Node)
	case *ast.MemberNode:
		path, err := pathOf(m.Node)
		if err != nil {
			return nil, err
		}
		name, ok := m.Property.(*ast.StringNode)
		if !ok {
			return nil, &pathError{m.Property, "a name in brackets must be a quoted text"}
		}
		return append(path, name.Value), nil
	}
	return nil, &pathError{n, "expected a name"}
}
