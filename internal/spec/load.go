package spec

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Bounds of a file.
const (
	// MaxFile is how large a pipeline file may be, in bytes.
	MaxFile = 1 << 20
	// maxDepth is how deep maps and lists may nest.
	maxDepth = 50
	// maxValues is how many values a file may hold, each alias counted as what
	// it stands for.
	maxValues = 300_000
)

// load reads the YAML of a file. It returns nil where the text is no YAML, or
// YAML that Belay does not take, and has reported why. What can be refused
// without the YAML library is refused before it.
func (p *parser) load() *yaml.Node {
	if !p.readable() {
		return nil
	}
	root := p.decode()
	if root == nil || !p.bounded(root) {
		return nil
	}
	p.strict(root)
	return root
}

// readable checks the bytes of the file.
func (p *parser) readable() bool {
	switch {
	case len(p.text) > MaxFile:
		p.add(place{}, "split it into several pipelines", fmt.Sprintf("the file is larger than %d MiB, which is the most that is allowed", MaxFile>>20))
		return false
	case strings.TrimSpace(p.text) == "":
		p.add(place{1, 1}, "begin with name: and stages:", "the file is empty")
		return false
	}
	ok := true
	for i := 1; i <= len(p.begins) && ok; i++ {
		ok = p.readableLine(i, p.line(i))
	}
	return ok
}

func (p *parser) readableLine(n int, s string) bool {
	if i := invalidUTF8(s); i >= 0 {
		p.add(place{n, 1 + utf8.RuneCountInString(s[:i])}, "save the file as UTF-8", fmt.Sprintf("the byte 0x%02X is not valid UTF-8", s[i]))
		return false
	}
	for i, r := range s {
		if (r < ' ' && r != '\t') || r == 0x7f || (r == '\uFEFF' && (n > 1 || i > 0)) {
			p.add(place{n, 1 + utf8.RuneCountInString(s[:i])}, "remove it", fmt.Sprintf("the control character %U is not allowed", r))
			return false
		}
	}
	return true
}

func invalidUTF8(s string) int {
	if utf8.ValidString(s) {
		return -1
	}
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return i
			}
		}
	}
	return -1
}

// decode hands the text to the YAML library and returns the one document in it.
// It is the border at which a panic of that library becomes an error.
func (p *parser) decode() (root *yaml.Node) {
	defer func() {
		if r := recover(); r != nil {
			p.add(place{1, 1}, "", fmt.Sprintf("the file is not valid YAML: %.200v", r))
			root = nil
		}
	}()
	d := yaml.NewDecoder(strings.NewReader(versionRE.ReplaceAllString(p.text, "${1}1")))
	var doc, second yaml.Node
	if err := d.Decode(&doc); err != nil {
		p.syntaxError(err)
		return nil
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		if err != nil {
			p.syntaxError(err)
		} else {
			p.errorf(&second, "put each pipeline into a file of its own", "a file holds one YAML document, found a second")
		}
		return nil
	}
	if len(doc.Content) != 1 {
		p.add(place{1, 1}, "", "the file is empty")
		return nil
	}
	return doc.Content[0]
}

var (
	// versionRE finds a directive for YAML 1.2, which the library reads but does
	// not know by this name.
	versionRE = regexp.MustCompile(`\A(\x{FEFF}?%YAML 1\.)2\b`)

	lineRE   = regexp.MustCompile(`^line (\d+): `)
	anchorRE = regexp.MustCompile(`^unknown anchor '(.+)' referenced`)
)

// bounded checks how deep and how large a document is, aliases included, without
// following any alias twice.
func (p *parser) bounded(root *yaml.Node) bool {
	m := &measure{known: map[*yaml.Node]extent{}, open: map[*yaml.Node]bool{}}
	whole := m.of(root)
	switch {
	case m.cycle != nil:
		p.errorf(m.cycle, "", "the alias *%s stands inside of what it stands for", m.cycle.Value)
		return false
	case whole.height > maxDepth:
		p.errorf(below(root, maxDepth), "", "maps and lists nest deeper than %d levels", maxDepth)
		return false
	case whole.size > maxValues:
		p.errorf(root, "use fewer aliases", "the file holds more than %d values, with what its aliases stand for", maxValues)
		return false
	}
	return true
}

// extent is how many values a node stands for, and how deep they nest.
type extent struct{ size, height int }

// measure computes extents, and finds an alias inside of its own anchor.
type measure struct {
	known map[*yaml.Node]extent
	open  map[*yaml.Node]bool
	cycle *yaml.Node
}

func (m *measure) of(n *yaml.Node) extent {
	alias := n
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Anchor != "" {
		if e, ok := m.known[n]; ok {
			return e
		}
		if m.open[n] {
			m.cycle = alias
			return extent{}
		}
		m.open[n] = true
	}
	e := extent{size: 1}
	for _, c := range n.Content {
		child := m.of(c)
		e.size = min(e.size+child.size, maxValues+1)
		e.height = max(e.height, child.height)
	}
	if len(n.Content) > 0 {
		e.height++
	}
	if n.Anchor != "" {
		m.known[n] = e
	}
	return e
}

// below is a node that lies depth levels under root.
func below(root *yaml.Node, depth int) *yaml.Node {
	m := &measure{known: map[*yaml.Node]extent{}, open: map[*yaml.Node]bool{}}
	n := root
	for ; depth > 0; depth-- {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		deepest := n
		for _, c := range n.Content {
			if deepest == n || m.of(c).height > m.of(deepest).height {
				deepest = c
			}
		}
		n = deepest
	}
	return n
}

// strict refuses what YAML has but a pipeline file does not: tags, merge keys,
// keys that are no text, and a key twice.
func (p *parser) strict(n *yaml.Node) {
	if n.Style&yaml.TaggedStyle != 0 {
		p.errorf(n, "remove it; quote what is meant as text", "the YAML tag %s is not supported", n.Tag)
		n.Tag, n.Style = "", n.Style&^yaml.TaggedStyle
	}
	if n.Kind == yaml.MappingNode {
		p.keys(n)
	}
	for _, c := range n.Content {
		p.strict(c)
	}
}

func (p *parser) keys(n *yaml.Node) {
	first := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case k.Kind != yaml.ScalarNode:
			p.errorf(k, "", "a key must be a plain text, found %s", found(k))
		case k.Tag == "!!merge":
			p.errorf(k, "repeat the keys, or use an alias for a whole value", "merge keys are not supported")
		case first[k.Value] != nil:
			p.errorf(k, "remove one of the two", "the key %s stands here twice, first in line %d", quote(k.Value), first[k.Value].Line)
		default:
			first[k.Value] = k
		}
	}
}
