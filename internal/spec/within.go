package spec

import (
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// within is the place in the file of an offset in the value of a scalar. YAML
// folds lines and knows escapes, so it follows both in step: it begins at the
// expression that the offset lies in, which it finds by counting.
func (p *parser) within(n *yaml.Node, offset int) place {
	const opening = "${{"
	offset = min(max(offset, 0), len(n.Value))
	source := p.offset(placeOf(n))
	if i := strings.LastIndex(n.Value[:min(offset+len(opening), len(n.Value))], opening); i >= 0 {
		count := strings.Count(n.Value[:i], opening)
		for ; count >= 0; count-- {
			at := strings.Index(p.text[source:], opening)
			if at < 0 {
				return placeOf(n)
			}
			if source += at; count > 0 {
				source += len(opening)
			}
		}
		return p.walk(n, source, n.Value[i:], max(0, offset-i))
	}
	switch {
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		source++
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		eol := strings.IndexByte(p.text[source:], '\n')
		if eol < 0 {
			return placeOf(n)
		}
		source += eol + 1
		source += len(p.text[source:]) - len(strings.TrimLeft(p.text[source:], " \n"))
	}
	return p.walk(n, source, n.Value, offset)
}

// walk goes on from a source offset by so many bytes of the value.
func (p *parser) walk(n *yaml.Node, source int, value string, count int) place {
	const blank = " \t\r\n"
	for i := 0; i < count && source < len(p.text); {
		rest := p.text[source:]
		gap := rest[:len(rest)-len(strings.TrimLeft(rest, blank))]
		if strings.Contains(gap, "\n") { // YAML makes of it what it likes, blanks in any case
			source += len(gap)
			i = len(value) - len(strings.TrimLeft(value[i:], blank))
			continue
		}
		if escapes(n, rest) {
			source++
		}
		_, width := utf8.DecodeRuneInString(p.text[source:])
		_, size := utf8.DecodeRuneInString(value[i:])
		source += width
		i += size
	}
	return p.placeAt(min(source, len(p.text)), n.Line)
}

// escapes reports whether the text of a quoted scalar begins with a sign that
// stands for nothing but that the next one is meant literally.
func escapes(n *yaml.Node, text string) bool {
	return text[0] == '\\' && n.Style&yaml.DoubleQuotedStyle != 0 ||
		text[0] == '\'' && n.Style&yaml.SingleQuotedStyle != 0
}
