package spec

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// syntaxError translates an error of the YAML library, which names a line only.
func (p *parser) syntaxError(err error) {
	if errors.Is(err, io.EOF) {
		p.add(place{1, 1}, "begin with name: and stages:", "the file is empty")
		return
	}
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := lineRE.FindStringSubmatch(message); m != nil {
		message = message[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	if strings.HasPrefix(message, "did not find expected") {
		line++ // these lines the library counts from 0
	}
	line = min(max(line, 1), len(p.begins))
	if at := p.tabIndent(line - 1); at > 0 && (strings.Contains(message, "tab") || strings.Contains(message, "cannot start any token") || at <= line+1) {
		p.add(place{at, 1}, "indent with spaces", "the file is not valid YAML: a tab in the indentation")
		return
	}
	at := p.suspect(line, message)
	text, hint := explain(message)
	p.add(at, hint, "the file is not valid YAML: "+text)
}

// tabIndent is the first line from n on that is indented with a tab, or 0.
func (p *parser) tabIndent(n int) int {
	for i := max(1, n); i <= len(p.begins); i++ {
		text := p.line(i)
		indent := text[:len(text)-len(strings.TrimLeft(text, " \t"))]
		if strings.Contains(indent, "\t") {
			return i
		}
	}
	return 0
}

// suspect guesses the column in a line that the library complained about.
func (p *parser) suspect(line int, message string) place {
	text := p.line(line)
	from := len(text) - len(strings.TrimLeft(text, " "))
	switch {
	case strings.Contains(message, "mapping values are not allowed"):
		if first := strings.Index(text[from:], ": "); first >= 0 {
			if second := strings.Index(text[from+first+1:], ": "); second >= 0 {
				from += first + 1 + second
			}
		}
	case strings.Contains(message, "cannot start any token"):
		for _, c := range []string{" @", " `", " %"} {
			if i := strings.Index(text, c); i >= 0 {
				from = i + 1
			}
		}
	case anchorRE.MatchString(message):
		alias := "*" + anchorRE.FindStringSubmatch(message)[1]
		if i := strings.Index(p.text, alias); i >= 0 {
			return p.placeAt(i, 1)
		}
	}
	return place{line, 1 + utf8.RuneCountInString(text[:from])}
}

// explain says in our words what the YAML library says in its own.
func explain(message string) (text, hint string) {
	for _, known := range []struct{ part, text, hint string }{
		{"mapping values are not allowed", "a : where no key can be", "quote a text that holds ': ', and look at the indentation"},
		{"did not find expected key", "expected a key", "look at the indentation, and at quotes that are not closed"},
		{"did not find expected '-' indicator", "expected a - of the list", "look at the indentation"},
		{"could not find expected ':'", "expected a : after the key", "write key: value, with a space after the :"},
		{"found character that cannot start any token", "a character that cannot begin a value", "quote texts that begin with @, ` or %"},
		{"did not find expected ',' or ']'", "a list in [ ] is not closed", "add the ] or a comma, and quote texts that hold [ ] { } or ,"},
		{"did not find expected ',' or '}'", "a map in { } is not closed", "add the } or a comma, and quote texts that hold [ ] { } or ,"},
		{"found unexpected end of stream", "a quoted text is not closed", "close its quote"},
		{"unknown anchor", message, "define it before with &name"},
		{"exceeded max depth", fmt.Sprintf("maps and lists nest deeper than %d levels", maxDepth), ""},
		{"did not find expected node content", "expected a value", ""},
		{"block sequence entries are not allowed", "a - where no list can be", "look at the indentation"},
		{"unknown escape", "an unknown escape in a quoted text", `write \\ for a backslash, or use single quotes`},
	} {
		if strings.Contains(message, known.part) {
			return known.text, known.hint
		}
	}
	return message, ""
}
