package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"belay.run/internal/expr"
)

// maxFile is the size of a file that is more than settings.
const maxFile = 1 << 20

// fileValues reads the file of settings at path; none where path is empty. The
// values that it could read are returned with the errors about the others.
func fileValues(path string) (map[string]value, []error) {
	out := make(map[string]value)
	if path == "" {
		return out, nil
	}
	raw, err := readLimited(path)
	if err != nil {
		return out, []error{fmt.Errorf("reading the settings: %w", err)}
	}
	file, err := parser.ParseBytes(raw, 0)
	if err != nil {
		return out, []error{fmt.Errorf("reading the settings: %s: %w", path, err)}
	}
	f := settingsFile{path: path, values: out}
	for i, doc := range file.Docs {
		if i > 0 {
			f.fail(doc, "one document is wanted, found another")
			break
		}
		f.document(doc.Body)
	}
	return out, f.errs
}

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(raw) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return raw, err
}

// settingsFile collects the settings of a file, each with its place.
type settingsFile struct {
	path   string
	values map[string]value
	errs   []error
}

func (f *settingsFile) fail(at ast.Node, format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%s: %w", f.where(at), fmt.Errorf(format, args...)))
}

func (f *settingsFile) where(at ast.Node) string {
	if at == nil || at.GetToken() == nil || at.GetToken().Position == nil {
		return f.path
	}
	pos := at.GetToken().Position
	return fmt.Sprintf("%s:%d:%d", f.path, pos.Line, pos.Column)
}

func (f *settingsFile) document(body ast.Node) {
	switch n := body.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode: // an empty file sets nothing
	case *ast.MappingNode:
		for _, entry := range n.Values {
			f.entry(entry)
		}
	case *ast.MappingValueNode:
		f.entry(n)
	default:
		f.fail(body, "settings are wanted as `name: value`, found %s", body.Type())
	}
}

func (f *settingsFile) entry(entry *ast.MappingValueNode) {
	name := entry.Key.GetToken().Value
	if names := settingNames(); !slices.Contains(names, name) {
		hint := ""
		if near := expr.Nearest(name, names); near != "" {
			hint = fmt.Sprintf(": did you mean %s?", near)
		}
		f.fail(entry.Key, "unknown setting %q%s", name, hint)
		return
	}
	if _, twice := f.values[name]; twice {
		f.fail(entry.Key, "%s is set twice", name)
		return
	}
	v, err := scalarOrList(entry.Value)
	if err != nil {
		f.fail(entry.Value, "%s: %w", name, err)
		return
	}
	v.where = f.where(entry.Value)
	f.values[name] = v
}

// scalarOrList reads a value. Only these two shapes are settings; anchors and
// aliases are not, which leaves nothing that could grow.
func scalarOrList(node ast.Node) (value, error) {
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		s, err := scalar(node)
		return value{text: s}, err
	}
	v := value{list: []string{}}
	for _, item := range seq.Values {
		s, err := scalar(item)
		if err != nil {
			return value{}, err
		}
		v.list = append(v.list, s)
	}
	return v, nil
}

func scalar(node ast.Node) (string, error) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return node.GetToken().Value, nil
	case nil, *ast.NullNode:
		return "", errors.New("the value is missing")
	}
	return "", fmt.Errorf("a plain value or a list of them is wanted, found %s", node.Type())
}
