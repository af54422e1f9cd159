package expr

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
)

// Checker checks expressions against the names that they may read. It is not
// safe for use by several goroutines.
type Checker struct {
	config *conf.Config
}

// NewChecker makes a Checker.
func NewChecker() *Checker { return &Checker{grammar()} }

// String checks the expressions in a template, and returns what they read.
func (c *Checker) String(template string, names Members) ([]Ref, []*Error) {
	if !Has(template) {
		return nil, nil
	}
	parts, err := split(template)
	if err != nil {
		return nil, errorsOf(err)
	}
	var refs []Ref
	var errs []*Error
	for _, p := range parts {
		if !p.code {
			continue
		}
		r, t, e := c.check(p, names)
		refs, errs = append(refs, r...), append(errs, e...)
		if len(e) == 0 && t != nil && !scalar(t) {
			errs = append(errs, &Error{
				Offset: p.begin(), Message: fmt.Sprintf("`%s` is %s, which has no text form", p.brief(), typeName(t)),
				Hint: "make one text of a list with join",
			})
		}
	}
	return refs, errs
}

// Bool checks a condition, and returns what it reads.
func (c *Checker) Bool(cond string, names Members) ([]Ref, []*Error) {
	p, err := bare(cond)
	if err != nil {
		return nil, errorsOf(err)
	}
	refs, t, errs := c.check(p, names)
	if len(errs) == 0 && t != nil && t.Kind() != reflect.Bool && t.Kind() != reflect.Interface {
		errs = append(errs, &Error{
			Offset: p.begin(), Message: fmt.Sprintf("a condition must be true or false, `%s` is %s", p.brief(), typeName(t)),
			Hint: "compare it with something, such as == \"x\"",
		})
	}
	return refs, errs
}

func errorsOf(err error) []*Error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // made by this package, never wrapped
		return []*Error{e}
	}
	return []*Error{{Message: err.Error()}}
}

func (c *Checker) check(p part, names Members) ([]Ref, reflect.Type, []*Error) {
	tree, err := parse(p, c.config)
	if err != nil {
		return nil, nil, errorsOf(err)
	}
	r := &resolver{part: p, names: names, made: map[ast.Node]*Name{}, types: types.Map{}}
	r.resolve(&tree)
	if len(r.errs) > 0 {
		slices.SortStableFunc(r.errs, func(a, b *Error) int { return cmp.Compare(a.Offset, b.Offset) })
		return r.refs, nil, r.errs
	}
	if n := r.made[tree]; n != nil {
		return r.refs, typeOf(n.Kind), nil
	}
	c.config.WithEnv(r.types)
	t, err := checker.Check(&parser.Tree{Node: tree, Source: file.NewSource(p.text)}, c.config)
	if err != nil {
		return r.refs, nil, []*Error{typeError(p, err)}
	}
	return r.refs, t, nil
}

// resolver looks up the references of an expression, and puts one plain name
// with the right type in the place of each, so that the library checks types
// without knowing our names.
type resolver struct {
	part  part
	names Members
	made  map[ast.Node]*Name
	types types.Map
	refs  []Ref
	errs  []*Error
	// stop is set where one mistake would show up as several.
	stop bool
}

func (r *resolver) resolve(node *ast.Node) {
	if *node == nil || r.stop || r.made[*node] != nil {
		return
	}
	if rooted(*node) {
		r.reference(node)
		return
	}
	for _, child := range children(*node) {
		r.resolve(child)
	}
	if b, ok := (*node).(*ast.BinaryNode); ok {
		r.compared(b)
	}
}

// children are the places of the nodes below n, in the order of reading.
func children(n ast.Node) []*ast.Node {
	switch n := n.(type) {
	case *ast.UnaryNode:
		return []*ast.Node{&n.Node}
	case *ast.BinaryNode:
		return []*ast.Node{&n.Left, &n.Right}
	case *ast.ChainNode:
		return []*ast.Node{&n.Node}
	case *ast.MemberNode:
		return []*ast.Node{&n.Node, &n.Property}
	case *ast.SliceNode:
		return []*ast.Node{&n.Node, &n.From, &n.To}
	case *ast.PredicateNode:
		return []*ast.Node{&n.Node}
	case *ast.ConditionalNode:
		return []*ast.Node{&n.Cond, &n.Exp1, &n.Exp2}
	case *ast.CallNode:
		return places(n.Arguments)
	case *ast.BuiltinNode:
		return places(n.Arguments)
	case *ast.ArrayNode:
		return places(n.Nodes)
	}
	return nil
}

func places(nodes []ast.Node) []*ast.Node {
	out := make([]*ast.Node, len(nodes))
	for i := range nodes {
		out[i] = &nodes[i]
	}
	return out
}

// reference looks up a whole reference, and replaces it.
func (r *resolver) reference(node *ast.Node) {
	steps, bad := stepsOf(*node)
	if bad != nil {
		r.fail(bad.node, "take a part of a text with [0:1]", "%s", bad.message)
		return
	}
	name, ok := r.lookUp(steps)
	if !ok {
		return
	}
	path := make([]string, len(steps))
	for i, s := range steps {
		path[i] = s.name
	}
	first := steps[0].node
	if name.Kind == KindGroup {
		r.fail(first, "it holds "+list(name.Members.Names()), "`%s` is a group of names, not a value", Written(path...))
		return
	}
	r.refs = append(r.refs, Ref{Path: path, Kind: name.Kind, Offset: r.part.at(first)})
	id := &ast.IdentifierNode{Value: fmt.Sprintf("$%d", len(r.types))}
	id.SetLocation(first.Location())
	r.types[id.Value] = types.TypeOf(zero(name.Kind))
	r.made[id] = name
	*node = id
}

func (r *resolver) lookUp(steps []step) (*Name, bool) {
	name := &Name{Kind: KindGroup, Members: r.names}
	for i, s := range steps {
		if name.Kind != KindGroup {
			r.fail(s.node, "", "`%s` is %s, it has no %s", writtenSteps(steps[:i]), typeName(typeOf(name.Kind)), s.name)
			return nil, false
		}
		next, why := name.Members.Member(s.name)
		switch {
		case why != nil:
			r.errs = append(r.errs, &Error{Offset: r.part.at(s.node), Message: why.Message, Hint: why.Hint})
			return nil, false
		case next == nil:
			r.unknown(s, steps[:i], name.Members)
			return nil, false
		}
		name = next
	}
	return name, true
}

func (r *resolver) fail(n ast.Node, hint, format string, args ...any) {
	r.errs = append(r.errs, &Error{Offset: r.part.at(n), Message: fmt.Sprintf(format, args...), Hint: hint})
}

// unknown reports a name that there is not. A name with a dash, which reads as
// a subtraction, is a mistake of its own.
func (r *resolver) unknown(s step, before []step, in Members) {
	names := in.Names()
	at := r.part.at(s.node) - r.part.offset
	if dashed := dashedName(r.part.text[min(at, len(r.part.text)):]); dashed != s.name && exists(in, dashed) {
		r.stop = true
		r.fail(s.node, fmt.Sprintf(`write %s["%s"]`, writtenSteps(before), dashed), "the name %s holds a dash, which reads as minus", dashed)
		return
	}
	hint := ""
	if near := Nearest(s.name, names); near != "" {
		hint = "did you mean " + near + "?"
	} else if len(names) > 0 {
		hint = "there is " + list(names)
	}
	of := ""
	if len(before) > 1 {
		of = " in " + writtenSteps(before)
	}
	r.fail(s.node, hint, "unknown %s %s%s", in.Noun(), s.name, of)
}

// exists reports whether there is a name, readable here or not.
func exists(in Members, name string) bool {
	n, why := in.Member(name)
	return n != nil || why != nil
}
