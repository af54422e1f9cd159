package spec

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Problem is one thing that is wrong with a pipeline file or its inputs. Line
// and Column count from 1, columns in characters; both are 0 where the problem
// has no place in the file.
type Problem struct {
	Path    string `json:"-"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Source is the line at fault, or the part of a long one around Column.
	Source string `json:"-"`
	// caret is the column in Source.
	caret int
}

// String is the problem in one line.
func (p Problem) String() string {
	var b strings.Builder
	if p.Path != "" {
		b.WriteString(p.Path + ":")
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d:", p.Line, p.Column)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// Report is everything found in a file, sorted by place. A file with Errors
// cannot run, one with Warnings can.
type Report struct {
	Errors   []Problem `json:"errors"`
	Warnings []Problem `json:"warnings"`
	// Unlisted is how many errors there are beside those listed, of which the
	// last then says so.
	Unlisted int `json:"unlisted,omitempty"`
}

// Count is how many errors there are.
func (r *Report) Count() int {
	if r.Unlisted == 0 {
		return len(r.Errors)
	}
	return len(r.Errors) - 1 + r.Unlisted
}

// Err is an *InvalidError with the errors, or nil where there are none.
func (r *Report) Err() error {
	if len(r.Errors) == 0 {
		return nil
	}
	return &InvalidError{Problems: r.Errors, Count: r.Count()}
}

// InvalidError says everything that is wrong with a file or its inputs.
type InvalidError struct {
	Problems []Problem
	// Count is how many errors there are: more than are listed, where these are
	// very many.
	Count int
}

// Error is one compact line a problem.
func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Render writes the problems for people: place and message, the line at fault
// with a caret below the place, and what to do.
func (e *InvalidError) Render(w io.Writer, color bool) error {
	return Render(w, "error", e.Problems, color)
}

// Render writes problems for people, each called by kind: error or warning.
func Render(w io.Writer, kind string, problems []Problem, color bool) error {
	paint := painter(color)
	for _, p := range problems {
		if _, err := io.WriteString(w, p.render(kind, paint)); err != nil {
			return fmt.Errorf("writing problems: %w", err)
		}
	}
	return nil
}

// Styles of a rendering, as the parameters of ANSI's SGR.
const (
	bold   = "1"
	red    = "1;31"
	yellow = "1;33"
	dim    = "2"
)

func painter(color bool) func(style, s string) string {
	if !color {
		return func(_, s string) string { return s }
	}
	return func(style, s string) string { return "\x1b[" + style + "m" + s + "\x1b[0m" }
}

func (p Problem) render(kind string, paint func(style, s string) string) string {
	var b strings.Builder
	place := p.Path
	if p.Line > 0 {
		place = strings.TrimPrefix(fmt.Sprintf("%s:%d:%d", p.Path, p.Line, p.Column), ":")
	}
	if place != "" {
		b.WriteString(paint(bold, place+":") + " ")
	}
	style := red
	if kind != "error" {
		style = yellow
	}
	b.WriteString(paint(style, kind+":") + " " + p.Message + "\n")
	margin := strings.Repeat(" ", len(strconv.Itoa(p.Line)))
	if p.Line > 0 && p.Source != "" {
		fmt.Fprintf(&b, " %s %s\n", paint(dim, fmt.Sprintf("%d |", p.Line)), p.Source)
		fmt.Fprintf(&b, " %s %s%s\n", paint(dim, margin+" |"), indent(p.Source, p.caret), paint(style, "^"))
	}
	if p.Hint != "" {
		fmt.Fprintf(&b, " %s %s\n", paint(dim, margin+" ="), p.Hint)
	}
	return b.String()
}

// indent is the blank space below the first characters of a line, with its tabs.
func indent(line string, column int) string {
	var b strings.Builder
	n := 1
	for _, r := range line {
		if n >= column {
			break
		}
		if r != '\t' {
			r = ' '
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// excerpt is the line, or the part of a long one around a column, without
// control characters, and the column in it.
func excerpt(line string, column int) (string, int) {
	const before, width = 60, 160
	line = strings.TrimRight(line, "\r\n")
	runes := utf8.RuneCountInString(line)
	if runes > width {
		from := max(0, column-1-before)
		r := []rune(line)
		line = string(r[from:min(len(r), from+width)])
		column -= from
	}
	return printable(line), column
}

// printable replaces what a terminal could take for an order, or not show.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '·'
	}, s)
}

// sortProblems sorts by place.
func sortProblems(ps []Problem) []Problem {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Message, b.Message))
	})
	// What an alias repeats is said once.
	return slices.CompactFunc(ps, func(a, b Problem) bool {
		return a.Line == b.Line && a.Column == b.Column && a.Message == b.Message
	})
}
