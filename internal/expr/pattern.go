package expr

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/expr-lang/expr/ast"
)

// matches reports whether text matches a pattern, which is written out in the
// expression so that its cost is known.
func (e *evaluator) matches(n *ast.BinaryNode, text string) (bool, error) {
	pattern, ok := n.Right.(*ast.StringNode)
	if !ok {
		return false, e.fail(n.Right, "the pattern of matches must be a quoted text")
	}
	re, size, err := compile(pattern.Value)
	if err != nil {
		return false, e.fail(n.Right, "%s", err)
	}
	// A byte of the text costs up to a step for each instruction of the pattern.
	if err := e.charge(n, size*len(text)); err != nil {
		return false, err
	}
	return re.MatchString(text), nil
}

// compile reads a pattern and says how large its program is.
func compile(pattern string) (*regexp.Regexp, int, error) {
	const limit = 1000
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, 0, fmt.Errorf("bad pattern: %w", err)
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, 0, fmt.Errorf("bad pattern: %w", err)
	}
	if len(prog.Inst) > limit {
		return nil, 0, errors.New("the pattern is too large")
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, 0, fmt.Errorf("bad pattern: %w", err)
	}
	return re, len(prog.Inst), nil
}
