package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

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
	f := settingsFile{path: path, values: out}
	docs := yaml.NewDecoder(bytes.NewReader(raw))
	var first, second yaml.Node
	switch err := docs.Decode(&first); {
	case errors.Is(err, io.EOF): // an empty file sets nothing
	case err != nil:
		return out, []error{fmt.Errorf("reading the settings: %s: %w", path, err)}
	default:
		f.document(first.Content[0])
		if err := docs.Decode(&second); !errors.Is(err, io.EOF) {
			f.fail(&second, "one document is wanted, found another")
		}
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

func (f *settingsFile) fail(at *yaml.Node, format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%s: %w", f.where(at), fmt.Errorf(format, args...)))
}

func (f *settingsFile) where(at *yaml.Node) string {
	if at.Line == 0 {
		return f.path
	}
	return fmt.Sprintf("%s:%d:%d", f.path, at.Line, at.Column)
}

func (f *settingsFile) document(body *yaml.Node) {
	switch {
	case isNull(body): // nothing but comments
	case body.Kind == yaml.MappingNode:
		for i := 0; i < len(body.Content); i += 2 {
			f.entry(body.Content[i], body.Content[i+1])
		}
	default:
		f.fail(body, "settings are wanted as `name: value`, found %s", kindOf(body))
	}
}

func (f *settingsFile) entry(key, node *yaml.Node) {
	name := key.Value
	if names := settingNames(); !slices.Contains(names, name) {
		hint := ""
		if near := expr.Nearest(name, names); near != "" {
			hint = fmt.Sprintf(": did you mean %s?", near)
		}
		f.fail(key, "unknown setting %q%s", name, hint)
		return
	}
	if _, twice := f.values[name]; twice {
		f.fail(key, "%s is set twice", name)
		return
	}
	v, err := scalarOrList(node)
	if err != nil {
		f.fail(node, "%s: %w", name, err)
		return
	}
	v.where = f.where(node)
	f.values[name] = v
}

// scalarOrList reads a value. Only these two shapes are settings; aliases are
// not, which leaves nothing that could grow.
func scalarOrList(node *yaml.Node) (value, error) {
	if node.Kind != yaml.SequenceNode {
		s, err := scalar(node)
		return value{text: s}, err
	}
	v := value{list: []string{}}
	for _, item := range node.Content {
		s, err := scalar(item)
		if err != nil {
			return value{}, err
		}
		v.list = append(v.list, s)
	}
	return v, nil
}

func scalar(node *yaml.Node) (string, error) {
	switch {
	case isNull(node):
		return "", errors.New("the value is missing")
	case node.Kind != yaml.ScalarNode:
		return "", fmt.Errorf("a plain value or a list of them is wanted, found %s", kindOf(node))
	}
	return node.Value, nil
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" }

func kindOf(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	case yaml.ScalarNode, yaml.DocumentNode:
	}
	return "a plain value"
}
