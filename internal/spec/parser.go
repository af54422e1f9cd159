package spec

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxProblems is how many errors, and how many warnings, are kept of one file.
const maxProblems = 200

// parser holds one file while it is read, and what was found in it.
type parser struct {
	path string
	text string
	// begins are the offsets at which the lines begin.
	begins           []int
	errors, warnings []Problem
	// dropped counts errors over maxProblems.
	dropped int
}

func newParser(path string, text []byte) *parser {
	p := &parser{path: path, text: string(text), begins: []int{0}}
	for i := range len(p.text) {
		if p.text[i] == '\n' {
			p.begins = append(p.begins, i+1)
		}
	}
	return p
}

// line is the text of a line, which counts from 1, without its line break.
func (p *parser) line(n int) string {
	if n < 1 || n > len(p.begins) {
		return ""
	}
	begin, end := p.begins[n-1], len(p.text)
	if n < len(p.begins) {
		end = p.begins[n]
	}
	return strings.TrimRight(p.text[begin:end], "\r\n")
}

// place is somewhere in the file.
type place struct{ line, column int }

func (p *parser) problem(at place, hint, message string) Problem {
	if last := len(p.begins); at.line > last { // the library may point behind the end
		at = place{last, 1 + utf8.RuneCountInString(p.line(last))}
	}
	out := Problem{Path: p.path, Line: at.line, Column: at.column, Message: printable(message), Hint: printable(hint)}
	out.Source, out.caret = excerpt(p.line(at.line), at.column)
	return out
}

func (p *parser) add(at place, hint, message string) {
	if p.full() {
		p.dropped++
		return
	}
	p.errors = append(p.errors, p.problem(at, hint, message))
}

// full reports whether no more errors are kept, so that nobody need search for
// words about them.
func (p *parser) full() bool { return len(p.errors) >= maxProblems }

// errorf reports that something is wrong at n.
func (p *parser) errorf(n *yaml.Node, hint, format string, args ...any) {
	p.add(placeOf(n), hint, fmt.Sprintf(format, args...))
}

// warnf reports what is probably not meant.
func (p *parser) warnf(n *yaml.Node, hint, format string, args ...any) {
	if len(p.warnings) < maxProblems {
		p.warnings = append(p.warnings, p.problem(placeOf(n), hint, fmt.Sprintf(format, args...)))
	}
}

func placeOf(n *yaml.Node) place { return place{n.Line, n.Column} }

// report is everything found, sorted.
func (p *parser) report() *Report {
	r := &Report{
		Errors:   append([]Problem{}, sortProblems(p.errors)...),
		Warnings: append([]Problem{}, sortProblems(p.warnings)...),
	}
	if p.dropped > 0 {
		r.Unlisted = p.dropped
		r.Errors = append(r.Errors, Problem{Path: p.path, Message: fmt.Sprintf("and %d more errors", p.dropped)})
	}
	return r
}

// offset is where a place is in the text.
func (p *parser) offset(at place) int {
	if at.line < 1 || at.line > len(p.begins) {
		return len(p.text)
	}
	o := p.begins[at.line-1]
	for c := 1; c < at.column && o < len(p.text); c++ {
		_, size := utf8.DecodeRuneInString(p.text[o:])
		o += size
	}
	return o
}

// placeAt is the place of an offset in the text that is not before line.
func (p *parser) placeAt(offset, line int) place {
	for line < len(p.begins) && p.begins[line] <= offset {
		line++
	}
	return place{line, 1 + utf8.RuneCountInString(p.text[p.begins[line-1]:offset])}
}
