package expr

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr/ast"
)

const (
	opening = "${{"
	closing = "}}"
	escaped = "$" + opening
)

// part is a piece of a template: literal text, or the code of an expression.
// Offset is where it begins in the template.
type part struct {
	text   string
	code   bool
	offset int
}

// at is the offset in the template of a node of this part's expression.
func (p part) at(n ast.Node) int {
	if n == nil {
		return p.offset
	}
	return p.offset + bytesOf(p.text, n.Location().From)
}

// begin is the offset in the template of the first thing of the expression.
func (p part) begin() int {
	return p.offset + len(p.text) - len(strings.TrimLeft(p.text, " \t\r\n"))
}

// brief is the expression as messages quote it.
func (p part) brief() string {
	const limit = 80
	s := strings.Join(strings.Fields(p.text), " ")
	if len(s) <= limit {
		return s
	}
	cut := limit
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// bytesOf is how many bytes the first runes of s take.
func bytesOf(s string, runes int) int {
	for i := range s {
		if runes == 0 {
			return i
		}
		runes--
	}
	return len(s)
}

// Has reports whether s holds an expression, well formed or not.
func Has(s string) bool {
	for {
		i := strings.Index(s, opening)
		if i < 0 {
			return false
		}
		if i == 0 || s[i-1] != '$' {
			return true
		}
		s = s[i+len(opening):]
	}
}

// Literal is a template whose text is s, whatever s holds.
func Literal(s string) string { return strings.ReplaceAll(s, opening, escaped) }

// split cuts a template into its parts.
func split(s string) ([]part, error) {
	var parts []part
	var literal strings.Builder
	begin, count := 0, 0
	for at := 0; ; {
		i := strings.Index(s[at:], opening)
		if i < 0 {
			literal.WriteString(s[at:])
			break
		}
		i += at
		if i > at && s[i-1] == '$' {
			literal.WriteString(s[at : i-1])
			literal.WriteString(opening)
			at = i + len(opening)
			continue
		}
		literal.WriteString(s[at:i])
		code := i + len(opening)
		end := closingOf(s, code)
		if end < 0 {
			return nil, &Error{Offset: i, Message: "${{ without its }}", Hint: "close it with }}, or write " + escaped + " for a literal ${{"}
		}
		if count++; count > MaxExpressions {
			return nil, &Error{Offset: i, Message: fmt.Sprintf("the text holds more than %d expressions", MaxExpressions)}
		}
		if literal.Len() > 0 {
			parts = append(parts, part{text: literal.String(), offset: begin})
			literal.Reset()
		}
		parts = append(parts, part{text: s[code:end], code: true, offset: code})
		at = end + len(closing)
		begin = at
	}
	if literal.Len() > 0 {
		parts = append(parts, part{text: literal.String(), offset: begin})
	}
	return parts, nil
}

// closingOf finds the }} that ends an expression begun before from: not one in
// a quoted text, nor of a brace inside of the expression.
func closingOf(s string, from int) int {
	var quote byte
	for i := from; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case strings.HasPrefix(s[i:], closing):
			return i
		}
	}
	return -1
}

// bare is the expression of a condition, with or without a ${{ }} around it.
func bare(cond string) (part, error) {
	trimmed := strings.TrimSpace(cond)
	offset := strings.Index(cond, trimmed)
	if !strings.HasPrefix(trimmed, opening) {
		return part{text: trimmed, code: true, offset: offset}, nil
	}
	parts, err := split(cond)
	if err != nil {
		return part{}, err
	}
	var code *part
	for i, p := range parts {
		switch {
		case !p.code && strings.TrimSpace(p.text) == "":
		case p.code && code == nil:
			code = &parts[i]
		default:
			return part{}, &Error{
				Offset:  p.offset,
				Message: "a condition is one expression, found text after its ${{ }}",
				Hint:    "write the whole condition as one expression, without ${{ }}",
			}
		}
	}
	return *code, nil
}
