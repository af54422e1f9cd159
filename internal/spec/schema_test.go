package spec

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	require.NoError(t, c.AddResource("belay.json", doc))
	s, err := c.Compile("belay.json")
	require.NoError(t, err)
	return s
}

// jsonOf is a document as a validator of JSON sees it.
func jsonOf(n *yaml.Node) any {
	n = resolve(n)
	if n.Kind == yaml.MappingNode {
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = jsonOf(n.Content[i+1])
		}
		return m
	}
	if n.Kind == yaml.SequenceNode {
		list := []any{}
		for _, c := range n.Content {
			list = append(list, jsonOf(c))
		}
		return list
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return n.Value
	}
	if _, ok := v.(time.Time); ok {
		return n.Value
	}
	return v
}

// shape is what reading alone, without the checks of the whole, says of a text;
// root is nil where it is no YAML that a schema could be asked about.
func shape(text []byte) (root *yaml.Node, problems []Problem) {
	p := newParser("", text)
	if root = p.load(); root == nil || len(p.errors) > 0 {
		return nil, nil
	}
	fileObject().read(p, root)
	return root, p.errors
}

// unseen are the mistakes in a single value that no schema can tell.
var unseen = regexp.MustCompile(`expected a duration of at|expected a size from|NUL|is one line of|expressions are not possible in (a matrix|labels)|` +
	`expected a whole number,? .*found (the number )?(0[0-9]|[0-9_]+_|[0-9.]+e|[0-9]+\.0)|the number .* cannot be read`)

func TestSchemaAcceptsWhatIsValid(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	for _, pattern := range []string{"testdata/valid/*.yaml", "../../examples/*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, name := range files {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			root, problems := shape(text)
			require.Empty(t, problems, name)
			require.NoError(t, s.Validate(jsonOf(root)), name)
		}
	}
}

// TestSchemaRefusesWrongShapes holds that the schema and the parser agree on
// every file of the corpora.
func TestSchemaRefusesWrongShapes(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	files, err := filepath.Glob("testdata/invalid/*.yaml")
	require.NoError(t, err)
	refused := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		root, problems := shape(text)
		if root == nil {
			continue
		}
		err = s.Validate(jsonOf(root))
		require.Equal(t, seen(problems), err != nil, "%s: %v, %v", name, problems, err)
		if err != nil {
			refused++
		}
	}
	require.Greater(t, refused, 20)
}

// seen reports whether one of the problems is one that a schema can see.
func seen(problems []Problem) bool {
	for _, p := range problems {
		if !unseen.MatchString(p.Message) {
			return true
		}
	}
	return false
}

// TestSchemaAgreesOnMutants puts something else into every place of the valid
// files, one at a time, and holds that schema and parser agree about each.
func TestSchemaAgreesOnMutants(t *testing.T) {
	t.Parallel()
	s := compileSchema(t)
	files, err := filepath.Glob("testdata/valid/*.yaml")
	require.NoError(t, err)
	accepted, refused := 0, 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		root, _ := shape(text)
		o := fileObject()
		mutate(root, func(what string) {
			p := newParser("", nil)
			o.read(p, root)
			err := s.Validate(jsonOf(root))
			if seen(p.errors) != (err != nil) && !onlyUnseen(p.errors) {
				require.Fail(t, "they do not agree", "%s: %s\nparser: %v\nschema: %v", name, what, p.errors, err)
			}
			if err != nil {
				refused++
			} else {
				accepted++
			}
		})
	}
	require.Greater(t, accepted, 300)
	require.Greater(t, refused, 1000)
}

// onlyUnseen reports whether the parser refuses a file for reasons alone that a
// schema need not see, but may.
func onlyUnseen(problems []Problem) bool { return len(problems) > 0 && !seen(problems) }

// mutate changes every place below n, one after the other, and back.
func mutate(n *yaml.Node, try func(what string)) {
	for i, c := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			mutate(c, try)
		}
	}
	before := *n
	for _, text := range []string{
		"", "x", "' '", "12", "1.5", "true", "5m", "10MiB", "2024-01-01", "[]", "[x]", "[{}]", "{}", "{a: b}", "rollback", "'${{ x }}'",
		"auto", "replace", "high", "{key: x}", "{group: x}",
	} {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			panic(err) // the list above is wrong
		}
		with := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
		if len(doc.Content) > 0 {
			with = *doc.Content[0]
		}
		with.Anchor = n.Anchor
		*n = with
		try(fmt.Sprintf("line %d: %q for %s", before.Line, text, before.Value))
		*n = before
	}
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i < len(before.Content); i += 2 {
		n.Content = append(append([]*yaml.Node{}, before.Content[:i]...), before.Content[i+2:]...)
		try(fmt.Sprintf("line %d: without %s", before.Line, before.Content[i].Value))
	}
	for _, extra := range []string{"unknown", "timeout", "run", "parallel", "git", "x-y", "BELAY_Z", "dedup", "concurrency", "risk", "when"} {
		if slices.ContainsFunc(before.Content, func(c *yaml.Node) bool { return c.Value == extra }) {
			continue
		}
		n.Content = append(append([]*yaml.Node{}, before.Content...),
			&yaml.Node{Kind: yaml.ScalarNode, Value: extra}, &yaml.Node{Kind: yaml.ScalarNode, Value: "5m"})
		try(fmt.Sprintf("line %d: with %s", before.Line, extra))
	}
	n.Content = before.Content
}
